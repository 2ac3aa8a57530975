"""Queries that are documents are left out of their own results in calibration, and found by the service as before."""

import json
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.metrics.inputs import (
    exclude_own,
    positions_excluding_own,
    ranking_outcomes,
    search_excluding_own,
)
from taugate.data.labelled_queries import LabelledQuery
from taugate.registry.catalog import current_id
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, refusal, small

OWN = ((7,), (), (1, 2))
POSITIONS = np.array([[7, 1, 2, 3, 4], [7, 1, 2, 3, 4], [1, 3, 2, 4, 5]])


@pytest.fixture
def calibrate(capfd: pytest.CaptureFixture[str]) -> Capture:
    return Capture(capfd)


def test_own_passages_are_excluded_in_order() -> None:
    assert positions_excluding_own(OWN, POSITIONS).tolist() == [[1, 2, 3], [7, 1, 2], [3, 4, 5]]
    top = exclude_own(OWN, TopK(-POSITIONS.astype(np.float32), POSITIONS))
    assert top.positions.tolist() == (-top.scores).astype(int).tolist() == [[1, 2, 3], [7, 1, 2], [3, 4, 5]]


def test_no_own_passages_leave_search_unchanged() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((20, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = FlatIndex.build(vectors)
    plain, remaining = index.search(vectors[:3], 4), search_excluding_own(index, [(), (), ()], vectors[:3], 4)
    assert (plain.positions == remaining.positions).all()
    assert (plain.scores == remaining.scores).all()
    without = search_excluding_own(index, [(0,), (1,), ()], vectors[:3], 4)
    assert without.positions.shape == (3, 4)
    assert without.positions[:2].tolist() == index.search(vectors[:3], 5).positions[:2, 1:].tolist()
    assert without.positions[2].tolist() == plain.positions[2].tolist()


def asking_by_documents(folder: Path, *, other_texts: bool = False) -> tuple[Path, Path]:
    """A data set whose queries are documents that another one answers, which has the same words in another order.

    Args:
        other_texts: Whether the documents under the ids of queries have texts of their own.
    """
    data, encoder = small(folder, 40)
    documents = [json.loads(line) for line in (data / "corpus.jsonl").read_text().splitlines()]
    extra = [
        item | {"_id": f"q{row}-0", "text": item["text"] if other_texts else " ".join(item["text"].split()[::-1])}
        for row, item in enumerate(documents[:40])
    ]
    lines = [json.dumps(item) for item in documents[:40] + extra]
    (data / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    if not other_texts:
        queries = [json.dumps({"_id": item["_id"], "text": item["text"]}) for item in extra]
        (data / "queries.jsonl").write_text("\n".join(queries) + "\n")
    return data, encoder


def test_calibration_excludes_own_documents(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = asking_by_documents(tmp_path)
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, "--k", "1", "--holdout", "0")
    assert (code, manifest["data"]["own_documents"]) == (0, 40)
    assert manifest["metrics"]["calibration"]["accuracy"]["mean"] == 1
    assert "queries that are documents of the corpus, under the same id and with the same text: 40;" in error
    report = (tmp_path / "r" / manifest["release_id"] / "report.html").read_text()
    assert "40; each is left out of its own results, as BEIR does" in report


def test_release_serves_own_documents(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = asking_by_documents(tmp_path)
    calibrate(data, tmp_path / "r", encoder, "--k", "1", "--holdout", "0")
    release = load(tmp_path / "r" / str(current_id(tmp_path / "r")))  # its golden queries are asked
    query = json.loads((data / "queries.jsonl").read_text().splitlines()[0])
    golden = [json.loads(line) for line in (tmp_path / "r" / release.manifest.release_id / "golden.jsonl").open()]
    assert golden[0]["text"] == query["text"]
    assert len(golden[0]["documents"]) == 1


def test_gate_excludes_own_documents() -> None:
    queries = [LabelledQuery("d0", "a", {1: 1}, own_passages=(0,)), LabelledQuery("q", "b", {1: 1})]
    outcomes = ranking_outcomes(queries, np.array([[0, 1, 2], [2, 1, 0]]), 1)
    assert outcomes.accuracy.tolist() == [1, 0]
    assert outcomes.ndcg.tolist() == [1, pytest.approx(1 / np.log2(3))]


def test_equal_ids_with_other_texts_are_ignored(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = asking_by_documents(tmp_path, other_texts=True)
    _, manifest, error = calibrate(data, tmp_path / "r", encoder, "--k", "1", "--holdout", "0")
    assert "own_documents" not in manifest["data"]
    assert "queries that are documents" not in error


def test_k_without_other_documents_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, encoder = asking_by_documents(tmp_path)
    arguments = [
        "calibrate",
        str(data),
        "--verbose",
        "--releases",
        str(tmp_path / "r"),
        "--encoder",
        str(encoder),
        "--k",
        "80",
    ]
    assert "--k 80: the corpus has only 79 documents" in refusal(arguments, tmp_path / "r", capfd)
