"""`--drawn`: how labels were drawn decides what counts as one draw, in certificate, manifest and console."""

import json
from pathlib import Path

import pytest

from taugate.calibration.recalibration.settings import inherited_settings
from taugate.release.verify import verify
from tests.calibration.commands import Capture, small

OPTIONS = ("--max-loss", "0.05", "--holdout", "0", "--refuse", "off", "--policy", "similarity", "--no-promote")
ASSUMED = 'drawn = "queries" certifies more'


@pytest.fixture
def calibrate(capfd: pytest.CaptureFixture[str]) -> Capture:
    return Capture(capfd)


@pytest.fixture
def repeated(tmp_path: Path) -> tuple[Path, Path]:
    """Six queries about each of 60 documents."""
    return small(tmp_path, 360)


def split_named(data: Path, split: str) -> None:
    (data / "qrels" / "test.tsv").rename(data / "qrels" / f"{split}.tsv")


def with_origin(data: Path, origin: str) -> None:
    path = data / "queries.jsonl"
    lines = [json.loads(line) | {"origin": origin} for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")


def test_unknown_labels_count_documents_and_name_option(
    repeated: tuple[Path, Path], tmp_path: Path, calibrate: Capture
) -> None:
    _, manifest, error = calibrate(repeated[0], tmp_path / "r", repeated[1], *OPTIONS)
    assert ASSUMED in error
    assert (manifest["evidence"]["unit"], manifest["evidence"]["units"]) == ("document", 60)
    assert "drawn" not in manifest["evidence"]


def test_drawn_queries_count_one_by_one(repeated: tuple[Path, Path], tmp_path: Path, calibrate: Capture) -> None:
    code, manifest, error = calibrate(repeated[0], tmp_path / "r", repeated[1], *OPTIONS, "--drawn", "queries")
    assert code == 0
    assert ASSUMED not in error
    (certificate,) = manifest["policy"]["certificates"]
    assert (certificate["unit"], certificate["queries"], certificate["queries_needed"]) == ("query", 360, 59)
    assert manifest["evidence"] == {"unit": "query", "units": 360, "design_effect": 1, "drawn": "queries"}
    assert "360 queries that certified it, which were drawn one by one" in manifest["policy"]["guarantee"]
    assert inherited_settings(verify(tmp_path / "r" / manifest["release_id"])).drawn == "queries"


@pytest.mark.parametrize("split", ["human", "traffic"])
def test_judged_queries_count_one_by_one(
    split: str, repeated: tuple[Path, Path], tmp_path: Path, calibrate: Capture
) -> None:
    split_named(repeated[0], split)
    _, manifest, error = calibrate(repeated[0], tmp_path / "r", repeated[1], *OPTIONS, "--split", split)
    assert ASSUMED not in error
    assert (manifest["evidence"]["unit"], manifest["evidence"]["drawn"]) == ("query", "queries")
    _, manifest, _ = calibrate(
        repeated[0], tmp_path / "r", repeated[1], *OPTIONS, "--split", split, "--drawn", "documents"
    )
    assert (manifest["evidence"]["unit"], manifest["evidence"]["drawn"]) == ("document", "documents")


def test_crops_count_documents_without_asking(repeated: tuple[Path, Path], tmp_path: Path, calibrate: Capture) -> None:
    split_named(repeated[0], "generated")
    with_origin(repeated[0], "crop")
    _, manifest, error = calibrate(repeated[0], tmp_path / "r", repeated[1], *OPTIONS)
    assert ASSUMED not in error
    assert manifest["evidence"]["unit"] == "document"
    _, _, error = calibrate(repeated[0], tmp_path / "r", repeated[1], *OPTIONS, "--drawn", "queries")
    assert "warning: --drawn queries: the queries of split generated were made from documents" in error


def test_papers_rule_asks_nothing(repeated: tuple[Path, Path], tmp_path: Path, calibrate: Capture) -> None:
    _, manifest, error = calibrate(repeated[0], tmp_path / "r", repeated[1])
    assert ASSUMED not in error
    _, drawn, _ = calibrate(repeated[0], tmp_path / "r", repeated[1], "--drawn", "queries")
    assert manifest["policy"]["tau"] == drawn["policy"]["tau"]
