"""How queries were drawn: one by one or by document, and how many of a document count."""

import json
from pathlib import Path

import pytest

from taugate.calibration.job.stages import sampling_units
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.request import inherited_settings
from taugate.calibration.settings import CalibrationSettings
from taugate.cli import main as cli
from taugate.data.beir import read_dataset
from taugate.evidence.rules import ThresholdRule
from taugate.release.layout import REPORT
from taugate.release.summary import summary_lines
from taugate.release.verify import verify
from tests.calibration.commands import Capture, Printed, arguments, failure, repeat_first, small

OPTIONS = ("--max-loss", "0.05", "--holdout", "0", "--refuse", "off", "--policy", "similarity", "--no-promote")
ASSUMED = 'drawn = "queries" certifies more'


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


CAPPED = ("--max-loss", "0.05", "--policy", "similarity", "--holdout", "0", "--refuse", "off", "--no-promote")


@pytest.fixture
def uneven(tmp_path: Path) -> tuple[Path, Path]:
    """One document with 82 of 280 queries, the other 99 with two each."""
    data, encoder = small(tmp_path, 280, texts=100)
    repeat_first(data, range(200, 280))
    return data, encoder


@pytest.mark.parametrize("cap", ["auto", "2"])
def test_capped_document_lets_others_certify(
    cap: str, uneven: tuple[Path, Path], tmp_path: Path, calibrate: Capture
) -> None:
    assert calibrate(*uneven[:1], tmp_path / "r", uneven[1], *CAPPED)[0] == 5
    code, manifest, error = calibrate(uneven[0], tmp_path / "r", uneven[1], *CAPPED, "--count-at-most", cap)
    assert code == 0
    (certificate,) = manifest["policy"]["certificates"]
    assert (certificate["count_at_most"], certificate["queries"], certificate["units"]) == (2, 280, 100)
    stated = "counting each document for at most 2 queries, at most 5 % of"
    assert stated in manifest["policy"]["guarantee"]
    assert stated in error
    release = tmp_path / "r" / manifest["release_id"]
    report = (release / REPORT).read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    evidence = "95 % confidence, 280 questions, at most 2 about a document"
    certified = f"at most 5 of 100 questions lose their answer ({evidence})"
    assert summary_lines(manifest["summary"])["Certified"] == certified
    assert f"Certified {certified}" in report
    assert "A document counts for at most 2 of its queries" in report
    assert inherited_settings(verify(release)).rule.count_at_most == 2


def test_cap_above_all_documents_changes_only_words(
    uneven: tuple[Path, Path], tmp_path: Path, calibrate: Capture
) -> None:
    options = ("--max-loss", "0.5", *CAPPED[2:])
    _, capped, _ = calibrate(uneven[0], tmp_path / "r", uneven[1], *options, "--count-at-most", "82")
    _, higher, _ = calibrate(uneven[0], tmp_path / "r", uneven[1], *options, "--count-at-most", "100")
    assert capped["policy"].get("tau") == higher["policy"].get("tau")
    (first,), (second,) = capped["policy"]["certificates"], higher["policy"]["certificates"]
    assert first == second | {"count_at_most": 82}


def test_default_cap_counts_nearly_all_queries(uneven: tuple[Path, Path], tmp_path: Path, calibrate: Capture) -> None:
    """Of 280 queries, 274.4 are 98 %: the 82 of one document count for 77."""
    _, manifest, _ = calibrate(uneven[0], tmp_path / "r", uneven[1], *CAPPED)
    assert manifest["policy"]["certificates"][0]["count_at_most"] == 77


def test_average_over_calibrations_can_be_capped(uneven: tuple[Path, Path], tmp_path: Path, calibrate: Capture) -> None:
    options = ("--max-loss", "0.05", "--guarantee", "expected-loss", *CAPPED[2:])
    assert calibrate(uneven[0], tmp_path / "r", uneven[1], *options)[0] == 3
    code, manifest, _ = calibrate(uneven[0], tmp_path / "r", uneven[1], *options, "--count-at-most", "2")
    assert code == 0
    assert "counting each document for at most 2 queries" in manifest["policy"]["guarantee"]


REFUSED = [
    (["--drawn", "queries"], "--count-at-most 2: the queries were drawn one by one"),
    (["--method", "bootstrap"], "--count-at-most: --method bootstrap follows the papers"),
    (["--policy", "similarity", "--tau", "0.5"], "--tau 0.5: a given threshold cannot be certified; leave out --count"),
]


@pytest.mark.parametrize(("more", "says"), REFUSED)
def test_contradicting_options_are_refused(
    more: list, says: str, uneven: tuple[Path, Path], tmp_path: Path, capfd: Printed
) -> None:
    asked = arguments(uneven[0], tmp_path / "r", uneven[1], "--count-at-most", "2", *more)
    assert failure(asked, capfd).startswith(says)


@pytest.mark.parametrize("cap", ["0", "-1"])
def test_invalid_cap_is_refused(cap: str, sample: Path, tmp_path: Path, capfd: Printed) -> None:
    asked = arguments(sample, tmp_path / "r", tmp_path, f"--count-at-most={cap}")
    assert failure(asked, capfd) == f"--count-at-most {cap}: give a whole number of 1 or more, or auto"
    assert cli.main([*asked, "--count-at-most", "some"]) == 2
    assert '"some": give auto, or a whole number of 1 or more' in capfd.readouterr().err


def test_cap_that_changes_nothing_is_reported(tmp_path: Path) -> None:
    data, _ = small(tmp_path, 60)
    settings, lines = CalibrationSettings(rule=ThresholdRule.from_options(count_at_most="auto")), list[str]()
    units = sampling_units(read_dataset(data, "test", tmp_path), settings, Job(lines.append))
    assert (units.unit, units.cap) == ("query", None)
    assert any(line.startswith("--count-at-most auto changes nothing") for line in lines)
