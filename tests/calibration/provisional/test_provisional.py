"""Provisional releases: generated queries, their bias, and the state that a release has."""

import json
from math import comb
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from taugate.calibration import provisional
from taugate.calibration.provisional import (
    AvailableEvidence,
    MeasuredSet,
    against_chance,
    calibration_record,
    count_generated,
    expected_bias,
    lower_limit,
    outlook,
    prediction_interval,
    read_table,
)
from taugate.cli import main as cli
from taugate.data.labelled_queries import LabelledQuery
from taugate.registry import history
from taugate.registry.catalog import current_id
from taugate.release.layout import REPORT
from taugate.release.manifest import Manifest
from taugate.release.records import MIN_QUERIES
from tests.calibration.commands import Capture, Printed, small
from tests.calibration.report.html_page import check

# Generated queries have .2 more accuracy on average, and lose .02 less to τ.
TABLE = [
    MeasuredSet("one", "encoder", 0.7, 0.6, 0.01, 0.02),
    MeasuredSet("two", "encoder", 0.8, 0.6, 0.01, 0.03),
    MeasuredSet("three", "encoder", 0.9, 0.6, 0.01, 0.04),
]


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
    tmp_path: Path, calibrate: Capture, capfd: Printed, rule: tuple[str, ...]
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


def measured_set(name: str, encoder: str, accuracy: float, loss: float) -> MeasuredSet:
    """A data set on which generated queries have so much more accuracy and loss than human ones."""
    return MeasuredSet(name, encoder, 0.5 + accuracy, 0.5, 0.2 + loss, 0.2)


def test_prediction_interval_equals_hand_calculation() -> None:
    """Four differences, worked out by hand: s = .1 · √(20/12), t(.975, 3) = 3.182446."""
    result = prediction_interval([0.1, 0.2, 0.3, 0.4])
    half = 3.182446 * 0.1 * (5 / 3) ** 0.5 * (5 / 4) ** 0.5
    assert result.mean == pytest.approx(0.25)
    assert (result.lower, result.upper) == (pytest.approx(0.25 - half, abs=1e-6), pytest.approx(0.25 + half, abs=1e-6))


@pytest.mark.parametrize("sets", [2, 3, 6, 12])
def test_prediction_interval_covers_next_set(sets: int) -> None:
    """Biases of data sets are normal around .1: the interval from m of them holds the next one at its nominal rate."""
    rounds, rng = 4000, np.random.default_rng(22)
    draws = rng.normal(0.1, 0.02, size=(rounds, sets + 1))
    covered = 0
    for *known, following in draws.tolist():
        result = prediction_interval(known)
        covered += result.lower <= following <= result.upper
    assert covered / rounds == pytest.approx(0.95, abs=3 * (0.95 * 0.05 / rounds) ** 0.5)


def test_confidence_interval_undercovers_next_set() -> None:
    """The mistake that the factor √(1 + 1/m) avoids: of six data sets, √(1/m) covers the next one far too seldom."""
    rng, m, rounds = np.random.default_rng(23), 6, 2000
    draws = rng.normal(0.1, 0.02, size=(rounds, m + 1))
    known, following = draws[:, :m], draws[:, m]
    half = stats.t.ppf(0.975, m - 1) * known.std(axis=1, ddof=1) / m**0.5
    assert np.mean(np.abs(following - known.mean(axis=1)) <= half) < 0.75


def test_encoders_of_set_are_averaged() -> None:
    once = [measured_set("a", "x", 0.1, -0.02), measured_set("b", "x", 0.3, -0.04), measured_set("c", "x", 0.2, 0.0)]
    twice = [measured_set("a", "y", 0.05, -0.02), *once, measured_set("a", "z", 0.15, -0.02)]
    result, again = expected_bias(once), expected_bias(twice)
    assert result is not None
    assert again is not None
    for one, other in ((result, again), (result.loss, again.loss)):
        assert (one.mean, one.lower, one.upper) == pytest.approx((other.mean, other.lower, other.upper))
    assert (result.mean, result.sets) == (pytest.approx(0.2), 3)
    assert result.loss.mean == pytest.approx(-0.02)


@pytest.mark.parametrize("table", [[], [measured_set("a", "x", 0.1, 0.0), measured_set("a", "y", 0.2, 0.0)]])
def test_single_data_set_gives_none(table: list[MeasuredSet]) -> None:
    assert expected_bias(table) is None


def test_limits_are_clipped_to_shares() -> None:
    result = prediction_interval([-0.9, 0.9])
    assert (result.lower, result.upper) == (-1, 1)


def test_shipped_table_holds_shares() -> None:
    table = read_table()
    figures = [
        figure
        for row in table
        for figure in (row.accuracy_generated, row.accuracy_human, row.loss_generated, row.loss_human)
    ]
    assert all(0 <= figure <= 1 for figure in figures)
    assert len({(row.set, row.encoder) for row in table}) == len(table) == 14
    assert len({row.set for row in table}) == 7


def hits(found: int, queries: int) -> np.ndarray:
    return np.arange(queries) < found


@pytest.mark.parametrize(("found", "queries"), [(1, 1), (3, 7), (29, 30), (50, 50)])
def test_lower_limit_equals_clopper_pearson(found: int, queries: int) -> None:
    """The accuracy with which so many hits, or more, come about once in twenty: the binomial sum, written out."""
    lower = lower_limit(found, queries)
    tail = sum(comb(queries, x) * lower**x * (1 - lower) ** (queries - x) for x in range(found, queries + 1))
    assert tail == pytest.approx(0.05)


def test_zero_hits_have_lower_limit_0() -> None:
    assert lower_limit(0, 40) == 0


def test_guessing_encoder_is_rarely_above_chance() -> None:
    """Accuracy is exactly K/N = .2; one in twenty is allowed."""
    rng, rounds = np.random.default_rng(0), 2000
    shown = sum(lower_limit(int(result), 50) > 0.2 for result in rng.binomial(50, 0.2, size=rounds))
    assert shown <= rounds * 0.05 + 2 * np.sqrt(rounds * 0.05 * 0.95)


@pytest.mark.parametrize(("queries", "state"), [(MIN_QUERIES - 1, "provisional"), (MIN_QUERIES, "calibrated")])
def test_query_count_decides_state(queries: int, state: str) -> None:
    record = calibration_record(np.ones(queries, dtype=bool), AvailableEvidence(queries, 0, documents=100, k=5))
    assert (record.state, record.human, record.generated, record.bias) == (state, queries, 0, None)
    assert record.reasons == ([] if state == "calibrated" else ["few_queries"])
    assert bool(record.because(5)) == (state == "provisional")


@pytest.mark.parametrize(("documents", "reasons"), [(5, ["few_documents"]), (6, [])])
def test_few_documents_make_release_provisional(documents: int, reasons: list[str]) -> None:
    record = calibration_record(np.ones(40, dtype=bool), AvailableEvidence(40, 0, documents, k=5))
    assert record.reasons == reasons
    assert record.accuracy.chance == 5 / documents
    assert record.chance_warning(5) is None


def test_all_reasons_are_named() -> None:
    record = calibration_record(np.array([True]), AvailableEvidence(1, 0, documents=3, k=3))
    assert record.reasons == ["few_queries", "few_documents"]
    assert "label 29 more" in record.because(3)
    assert "no more documents than K = 3" in record.because(3)


@pytest.mark.parametrize(
    ("human", "generated", "reasons", "said"),
    [
        (0, 400, ["generated_queries", "few_queries"], "all 400 answerable queries were generated"),
        (0, 1, ["generated_queries", "few_queries"], "the only answerable query was generated"),
        (29, 400, ["generated_queries", "few_queries"], "label 30 or more questions that people asked"),
        (30, 1, ["generated_queries"], "1 of 31 answerable queries were generated"),
        (1200, 400, ["generated_queries"], "put the 1,200 queries of people into a split of their own"),
    ],
)
def test_generated_query_makes_release_provisional(human: int, generated: int, reasons: list[str], said: str) -> None:
    record = calibration_record(np.ones(human + generated, dtype=bool), AvailableEvidence(human, generated, 1000, k=5))
    assert (record.state, record.reasons) == ("provisional", reasons)
    assert (record.human, record.generated) == (human, generated)
    assert said in record.because(5)
    assert "are the fewest to rely on" not in record.because(5), "one thing to do, not two"


def test_traffic_counts_as_human() -> None:
    origins = ("human", "crop", "llm", "traffic", "crop")
    queries = [LabelledQuery(origin, "a question", {0: 1}, origin=origin) for origin in origins]
    assert count_generated(queries) == 3


def test_queries_needed_are_minimal() -> None:
    """So many copies of the set are above chance, and one fewer are not."""
    record = against_chance(8, 20, 0.3)
    assert not record.shown
    copies = record.queries_needed // 20
    assert [against_chance(8 * sets, 20 * sets, 0.3).shown for sets in (copies - 1, copies)] == [False, True]


def test_chance_accuracy_needs_no_queries() -> None:
    record = against_chance(2, 20, 0.1)
    assert (record.shown, record.queries_needed) == (False, None)


@pytest.mark.parametrize(("queries", "state"), [(40, "adjusted"), (12, "provisional")])
def test_given_threshold_makes_release_adjusted(queries: int, state: str) -> None:
    evidence = AvailableEvidence(human=queries, generated=0, documents=1000, k=5)
    assert calibration_record(np.ones(queries, dtype=bool), evidence, adjusted=True).state == state


def test_unproven_encoder_makes_release_provisional() -> None:
    evidence = AvailableEvidence(human=400, generated=0, documents=1000, k=5, encoder_unproven=True)
    record = calibration_record(np.ones(400, dtype=bool), evidence)
    assert (record.state, record.reasons, record.bias) == ("provisional", ["generated_queries"], None)
    assert "no query that a person asked has shown that it is better" in record.because(5)
    assert "generated, not asked" not in record.because(5)
