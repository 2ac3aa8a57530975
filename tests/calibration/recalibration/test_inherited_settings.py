"""The settings that a recalibration takes from a manifest: on unchanged data they make the same release again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from taugate.calibration.acceptance.better_lists import PROVISIONAL_WEIGHT
from taugate.calibration.encoding.source import RequestedEncoder
from taugate.calibration.job.calibration import calibrate
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.request import (
    inherited_encoder,
    inherited_settings,
    no_rule,
    with_traffic_labels,
)
from taugate.calibration.settings import CalibrationSettings, CandidateSettings
from taugate.errors import InputError
from taugate.evidence.rules import GateSettings
from taugate.release.manifest import Manifest
from taugate.release.search_records import GateRecord
from taugate.release.verify import verify_searchable
from tests.registry.conftest import copy, first

pytestmark = pytest.mark.slow

__all__ = ["copy", "first"]

SMALL = {"bootstraps": 50, "sample_size": 40, "holdout": 0.0}
KINDS: dict[str, dict[str, Any]] = {
    "papers": {"k": 3, "seed": 7, "overlap_percentile": 10.0, "metric": "ndcg", "relevant_from": 1},
    "several losses": {"max_loss": [0.2, 0.3], "confidence": 0.8, "holdout": 0.2},
    "expected loss": {"max_loss": [0.2], "guarantee": "expected-loss", "policy": "similarity", "max_empty": 0.3},
    "non-inferiority": {"method": "non-inferiority", "policy": "relative", "max_loss": [0.2]},
    "strata": {"max_loss": [0.2], "strata": "metadata.kind"},
    "refusals": {"max_answered": 0.5, "max_empty": 0.4, "confidence": 0.9},
    "few labels": {"labels": ("human",), "max_loss": [0.3]},
    "index": {"index": "hnsw"},
    "index that is refused": {"index": "flat-float16", "margin": 0.0001, "gate_confidence": 0.9},
    "projection and index": {"projection": "query-pca", "retention": 0.5, "index": "flat-int8"},
    "any projection": {"projection": "auto", "margin": 0.2},
    "papers' score": {"lexical": "off"},
    "given lexical weight": {"lexical": 0.4, "index": "flat-int8", "gate_confidence": 0.9},
}


@pytest.fixture(scope="module")
def data(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with a metadata field, with queries that have no answer, and with a split of sixty judged queries."""
    folder = Path(shutil.copytree(sample, tmp_path_factory.mktemp("data") / "zaragoza"))
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    for row, record in enumerate(corpus):
        record["metadata"] = {"kind": "even" if row % 2 else "odd"}
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in corpus))
    judged = (folder / "qrels" / "test.tsv").read_text().splitlines(keepends=True)
    (folder / "qrels" / "human.tsv").write_text("".join(judged[:61]))
    with (folder / "queries.jsonl").open("a") as queries, (folder / "qrels" / "test.tsv").open("a") as qrels:
        for row in range(80):
            queries.write(json.dumps({"_id": f"none-{row}", "text": f"Zebra number {row}?"}) + "\n")
            qrels.write(f"none-{row}\t{corpus[row]['_id']}\t0\n")
    return folder


def made(data: Path, releases: Path, asked: RequestedEncoder, settings: CalibrationSettings) -> Manifest:
    return calibrate(str(data), releases, asked, settings, Job())


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=pytest.mark.exhaustive if options.get("projection") == "auto" else ())
        for name, options in KINDS.items()
    ],
)
def test_inherited_settings_reproduce_release(
    options: dict[str, Any], data: Path, encoder: Path, tmp_path: Path
) -> None:
    split = {} if "labels" in options else {"split": "test"}
    asked = CalibrationSettings.from_options(SMALL | split | options)
    one = made(data, tmp_path / "one", RequestedEncoder(str(encoder), new=True), asked)
    assert one.policy.tau is not None
    inherited = inherited_settings(one)
    other = made(data, tmp_path / "other", inherited_encoder(tmp_path / "one" / one.release_id, one), inherited)
    assert other.release_id[-12:] == one.release_id[-12:]
    assert inherited_settings(other) == inherited


@pytest.fixture(scope="module")
def indexed(data: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """A release whose index passed the gate."""
    asked = CalibrationSettings.from_options(SMALL | {"split": "test", "index": "flat-int8", "margin": 0.2})
    return made(data, tmp_path_factory.mktemp("indexed"), RequestedEncoder(str(encoder), new=True), asked)


def record(like: GateRecord, kind: str, candidate: str, *, admitted: bool) -> GateRecord:
    return like.model_copy(update={"kind": kind, "candidate": candidate, "admitted": admitted, "confidence": 0.975})


@pytest.mark.parametrize(
    ("precision", "admitted", "expected"),
    [("int8", True, "int8"), ("float32", True, "auto"), ("float32", False, "auto")],
)
def test_inherited_settings_repeat_gate_candidates(
    indexed: Manifest, precision: str, expected: str, *, admitted: bool
) -> None:
    release, like = indexed, indexed.gate[-1]
    assert release.lexical is not None
    gate = [record(like, "precision", "int8", admitted=admitted), record(like, "index", "flat-int8", admitted=False)]
    encoded = release.encoder.model_copy(update={"precision": precision})
    found = inherited_settings(release.model_copy(update={"gate": gate, "encoder": encoded})).candidates
    assert found == CandidateSettings(
        precision=expected,  # type: ignore[arg-type]
        index="flat-int8",
        lexical=release.lexical.weight,
        gate=GateSettings(0.2, 0.95),
    )


@pytest.mark.parametrize(("weight", "expected"), [(None, "off"), (PROVISIONAL_WEIGHT, "auto"), (0.5, 0.5)])
def test_unjudged_lexical_weight_is_kept_unless_it_is_the_default(
    copy: Path, first: str, weight: float | None, expected: float | str
) -> None:
    manifest = verify_searchable(copy / first)
    assert inherited_settings(manifest).candidates.lexical == "auto"
    assert manifest.lexical is not None
    lexical = None if weight is None else manifest.lexical.model_copy(update={"weight": weight})
    changed = manifest.model_copy(update={"gate": [], "lexical": lexical})
    assert inherited_settings(changed).candidates.lexical == expected


def test_given_threshold_has_no_rule(copy: Path, first: str) -> None:
    manifest = verify_searchable(copy / first)
    given = manifest.model_copy(update={"policy": manifest.policy.model_copy(update={"method": "fixed"})})
    assert inherited_settings(given).rule.tau == manifest.policy.tau
    assert no_rule(manifest) is None
    assert "was given with --tau" in str(no_rule(given))


def test_traffic_is_added_to_labelled_splits(copy: Path, first: str) -> None:
    settings = inherited_settings(verify_searchable(copy / first))
    assert with_traffic_labels(settings, ["test", "traffic"]).labelled_splits == ("test", "traffic")
    generated = CalibrationSettings(split="generated")
    assert with_traffic_labels(generated, ["generated", "human", "traffic"]).labelled_splits == ("human", "traffic")
    with pytest.raises(InputError, match="taugate judge"):
        with_traffic_labels(generated, ["generated", "traffic"])
