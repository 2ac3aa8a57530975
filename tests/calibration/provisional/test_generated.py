"""A calibration on generated queries: what is recorded, said, shown and promoted."""

import json
from pathlib import Path

import pytest

from taugate.calibration import provisional
from taugate.calibration.provisional import MeasuredSet, outlook
from taugate.cli import main as cli
from taugate.registry import history
from taugate.registry.catalog import current_id
from taugate.release.layout import REPORT
from taugate.release.manifest import Manifest
from tests.calibration.commands import Capture, small
from tests.calibration.report.html_page import check

# Generated queries have .2 more accuracy on average, and lose .02 less to τ.
TABLE = [
    MeasuredSet("one", "encoder", 0.7, 0.6, 0.01, 0.02),
    MeasuredSet("two", "encoder", 0.8, 0.6, 0.01, 0.03),
    MeasuredSet("three", "encoder", 0.9, 0.6, 0.01, 0.04),
]


@pytest.fixture
def calibrate(capfd: pytest.CaptureFixture[str]) -> Capture:
    return Capture(capfd)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provisional, "read_table", lambda: TABLE)


def generated(data: Path, human: int = 0) -> Path:
    """The same data set, whose queries after the first `human` are crops of its documents."""
    path = data / "queries.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    origins = [{}] * human + [{"origin": "crop"}] * (len(records) - human)
    lines = [json.dumps(record | origin) for record, origin in zip(records, origins, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return data


@pytest.mark.usefixtures("measured")
def test_bias_is_recorded_and_printed(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = small(tmp_path, 60)
    code, manifest, error = calibrate(generated(data), tmp_path / "r", encoder)
    record = manifest["calibration"]
    assert (code, record["state"], record["reasons"]) == (0, "provisional", ["generated_queries", "few_queries"])
    assert (record["human"], record["generated"]) == (0, 60)
    half = 4.302653 * 0.1 * (4 / 3) ** 0.5  # t(.975, 2) · s · √(1 + 1/3)
    assert {name: round(record["bias"][name], 6) for name in ("mean", "lower", "upper", "sets")} == {
        "mean": 0.2,
        "lower": round(0.2 - half, 6),
        "upper": round(0.2 + half, 6),
        "sets": 3,
    }
    assert record["bias"]["loss"]["mean"] == pytest.approx(-0.02)
    first, *lines = error.splitlines()
    assert first.startswith("PROVISIONAL: all 60 answerable queries were generated")
    assert "label 30 or more questions that people asked, in qrels/human.tsv" in first
    (at,) = (row for row, line in enumerate(lines) if line.startswith("PROVISIONAL: "))
    unknown = "this share is unknown until people judge: it may be 30.3\u00a0% to 100.0\u00a0%."
    assert f"For questions that people ask, {unknown}" in lines[at]
    assert "from 3 public data sets" in lines[at]
    assert at < next(row for row, line in enumerate(lines) if line.startswith("accuracy@5"))
    assert any(line.startswith("State       provisional: all 60") for line in lines)
    assert any(line.startswith("Measured    60 generated queries ") for line in lines)
    report = (tmp_path / "r" / manifest["release_id"] / REPORT).read_text(encoding="utf-8")
    assert check(report).text["headline"].index("Provisional") < check(report).text["headline"].index("95 % prediction")
    assert (
        report.index('class="warning"')
        == report.index('class="warning"><b>Provisional.</b> All 60')
        < report.index("τ =")
    )


def test_missing_table_leaves_bias_unknown(tmp_path: Path, calibrate: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provisional, "read_table", list)
    data, encoder = small(tmp_path, 60)
    _, manifest, error = calibrate(generated(data), tmp_path / "r", encoder)
    assert manifest["calibration"].get("bias") is None
    assert "For questions that people ask, this share is unknown" in error
    assert "expect" not in error.split("accuracy@5")[0]


@pytest.mark.usefixtures("measured")
def test_mixed_queries_are_provisional(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = small(tmp_path, 60)
    _, manifest, error = calibrate(generated(data, human=40), tmp_path / "r", encoder)
    record = manifest["calibration"]
    assert (record["reasons"], record["human"], record["generated"]) == (["generated_queries"], 40, 20)
    assert "put the 40 queries of people into a split of their own" in error.splitlines()[0]
    assert "the questions (20 of 60 generated) find" in error


@pytest.mark.usefixtures("measured")
def test_written_queries_have_no_bias(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = small(tmp_path, 60)
    generated(data)
    queries = data / "queries.jsonl"
    queries.write_text(queries.read_text(encoding="utf-8").replace('"crop"', '"llm"', 1), encoding="utf-8")
    _, manifest, error = calibrate(data, tmp_path / "r", encoder)
    assert (manifest["calibration"].get("bias"), manifest["calibration"]["generated"]) == (None, 60)
    assert "For questions that people ask, this share is unknown" in error
    assert "(the round trip)" in error


@pytest.mark.usefixtures("measured")
def test_calibrated_release_omits_bias(tmp_path: Path, calibrate: Capture) -> None:
    """So that the digests of releases of human queries stay what they were."""
    data, encoder = small(tmp_path, 60)
    _, manifest, error = calibrate(data, tmp_path / "r", encoder)
    assert manifest["calibration"].get("bias") is None
    assert manifest["calibration"].keys() == {"state", "reasons", "human", "generated", "accuracy"}
    assert "PROVISIONAL" not in error
    assert "State       calibrated\n" in error


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("rule", [(), ("--max-accuracy-drop", "0.5")], ids=["none", "rule"])
def test_provisional_release_replaces_no_calibrated(
    tmp_path: Path, calibrate: Capture, capfd: pytest.CaptureFixture[str], rule: tuple[str, ...]
) -> None:
    data, encoder = small(tmp_path, 60)
    releases = tmp_path / "r"
    _, human, _ = calibrate(data, releases, encoder)
    generated(data)
    code, crops, error = calibrate(data, releases, encoder, *rule)
    assert (code, current_id(releases)) == (4, human["release_id"])
    last = error.splitlines()[-1]
    for part in ("is calibrated: all 60 answerable queries were generated", "give --force", "but not promoted"):
        assert part in last
    assert "provisional" in last
    assert cli.main(["release", "list", "--releases", str(releases)]) == 0
    rows = [row for row in capfd.readouterr().out.splitlines() if not row.startswith("   ")]
    assert [("calibrated" in row, "provisional" in row) for row in rows] == [(True, False), (False, True)]
    assert cli.main(["release", "promote", crops["release_id"], "--releases", str(releases), "--force"]) == 0
    assert current_id(releases) == crops["release_id"]
    assert history.read(releases).events[-1].forced == ("provisional",)
    capfd.readouterr()
    assert cli.main(["release", "show", "--releases", str(releases)]) == 0
    assert "is provisional: all 60 answerable queries were generated" in capfd.readouterr().err


@pytest.mark.usefixtures("measured")
def test_guarantee_names_generated_questions(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = small(tmp_path, 120, texts=120)
    _, manifest, error = calibrate(generated(data), tmp_path / "r", encoder, "--max-loss", "0.1")
    assert manifest["policy"]["statement"] == "high-probability"
    limit = "The guarantee holds for questions generated like these, and for no others: on most of the public data sets"
    assert limit in error
    assert "The threshold loses" not in error
    release = Manifest.model_validate(manifest)
    assert release.calibration is not None
    known = release.calibration.bias
    assert known is not None
    for half, words in ((0.2, "expect 80.0\u00a0% (60.0\u00a0% to 100.0\u00a0%)"), (0.4, "this share is unknown")):
        narrow = known.model_copy(update={"lower": 0.2 - half, "upper": 0.2 + half})
        record = release.calibration.model_copy(update={"bias": narrow})
        expected = outlook(record, release.policy, release.metrics["heldout"], refusing=True)
        assert expected is not None
        assert f"For questions that people ask, {words}" in expected
    none = release.policy.model_copy(update={"kind": "none", "tau": None})
    message = outlook(release.calibration, none, release.metrics["heldout"], refusing=False)
    assert message is not None
    assert limit not in message
    assert "The threshold loses" not in message
