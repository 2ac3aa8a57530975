"""A second stage behind an endpoint is used only if it helps, and a recalibration keeps or drops it for its reason."""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import orjson
import pytest

from taugate.calibration.settings import CalibrationSettings
from taugate.cli import main as cli
from taugate.errors import InputError
from taugate.registry.catalog import find, release_ids
from taugate.registry.promotion import scorer_differs
from taugate.release.verify import verify_searchable
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate.retrieval.rerank import stage
from tests.calibration.commands import Printed
from tests.calibration.job.test_second_stage import ANSWERS, FAQ, calibrate, manifest_of
from tests.calibration.update.corpora import mixed_changes, newer
from tests.rerank_server import RerankServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RerankServer]:
    """A reranker that knows nine answers of ten."""

    def score(query: str, text: str) -> float:
        known = len(query) % 10 > 0
        return 0.9 if known and text == ANSWERS.get(query) else (len(text) % 97) / 200

    with RerankServer(score) as started:
        monkeypatch.setenv("TAUGATE_RERANK_URL", started.url)
        yield started


def test_gate_accepts_a_second_stage_that_helps(
    server: RerankServer, sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert calibrate(sample, encoder, tmp_path, "--rerank", "auto:endpoint") == 0
    manifest = manifest_of(tmp_path)
    record = manifest.gate[-1]
    assert (record.kind, record.admitted) == ("rerank", True)
    assert record.ndcg.candidate > record.ndcg.baseline
    assert manifest.second_stage is not None
    server.fault = "stall"
    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE"):  # the search is in the pause, however long loading takes
        monkeypatch.setattr(stage, name, float("inf"))
    began_without = load(find(tmp_path))  # the first stage serves while the endpoint is down
    (answer,) = began_without.retriever.search([Query(FAQ[0]["q"], 5)])
    assert (answer.stage, answer.skipped) == ("first", "paused")


@pytest.mark.slow
def test_recalibration_keeps_an_endpoint_that_scores_alike(
    server: RerankServer, sample: Path, encoder: Path, tmp_path: Path
) -> None:
    assert calibrate(sample, encoder, tmp_path, "--rerank", "auto:endpoint") == 0
    before, data = find(tmp_path), newer(sample, tmp_path / "newer", mixed_changes)
    lines = (data / "qrels" / "test.tsv").read_text("utf-8").splitlines()  # without some queries, so with other pairs
    (data / "qrels" / "test.tsv").write_text("\n".join([lines[0], *lines[40:]]) + "\n", "utf-8")
    assert cli.main(["recalibrate", str(data), "--releases", str(tmp_path)]) == 0
    manifest = manifest_of(tmp_path)
    assert manifest.parent == before.name
    assert manifest.second_stage is not None
    server.score = lambda query, text: len(text) / 10_000
    assert calibrate(sample, encoder, tmp_path, "--rerank", "endpoint", "--no-promote") == 0
    other = verify_searchable(tmp_path / release_ids(tmp_path)[-1])
    assert other.release_id != manifest.release_id
    assert scorer_differs(tmp_path, other), "another model answers at the endpoint"


@pytest.mark.slow
def test_recalibration_without_a_second_stage_that_helps_is_not_promoted(
    server: RerankServer, sample: Path, encoder: Path, tmp_path: Path, capsys: Printed
) -> None:
    assert calibrate(sample, encoder, tmp_path, "--rerank", "auto:endpoint") == 0
    before = find(tmp_path)
    server.score = lambda query, text: (crc32(f"{query}{text}".encode()) % 1000) / 1000
    data = newer(sample, tmp_path / "newer", mixed_changes)
    capsys.readouterr()
    assert cli.main(["recalibrate", str(data), "--releases", str(tmp_path)]) == 4
    last = capsys.readouterr().err.splitlines()[-1]
    assert "has one stage, but the current release" in last
    assert "a second stage that is not shown to help is left out" in last
    assert "encoded" not in last
    assert find(tmp_path) == before
    new = next(name for name in release_ids(tmp_path) if name != before.name)
    assert cli.main(["release", "promote", new, "--releases", str(tmp_path), "--new-encoder"]) == 0


def test_gate_refuses_a_second_stage_that_does_not_help(
    server: RerankServer, sample: Path, encoder: Path, tmp_path: Path
) -> None:
    server.score = lambda query, text: (crc32(f"{query}{text}".encode()) % 1000) / 1000
    assert calibrate(sample, encoder, tmp_path, "--rerank", "auto:endpoint") == 0
    manifest = manifest_of(tmp_path)
    assert (manifest.gate[-1].kind, manifest.gate[-1].admitted) == ("rerank", False)
    assert manifest.second_stage is None
    assert "second_stage" not in orjson.loads((find(tmp_path) / "manifest.json").read_bytes())


@pytest.mark.parametrize(
    "options",
    [
        {"rerank": ""},
        {"rerank": "auto:"},
        {"rerank": "model", "rerank_candidates": 3},
        {"rerank": "model", "tau": 0.5, "policy": "similarity"},
        {"rerank": "model", "strata": "metadata.category", "max_loss": [0.05]},
        {"rerank": "model", "labels": ("human",)},
    ],
)
def test_options_that_a_second_stage_does_not_work_with_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="rerank"):
        CalibrationSettings.from_options(options)
