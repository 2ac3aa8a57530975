"""Few labels: what is written and promoted, and what is missing for a certificate."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from taugate.calibration.report.terminal import statement
from taugate.calibration.threshold.shortage import RuleVariant, evidence_bound
from taugate.cli import main as cli
from taugate.evidence.rules import ThresholdRule
from taugate.policy.names import NO_CUT
from taugate.registry import history
from taugate.registry.catalog import current_id, release_ids
from taugate.release.layout import REPORT
from taugate.release.verify import verify
from tests.calibration.commands import Capture, Printed, arguments, refusal, repeat_first, small

CERTIFIED = ("--max-loss", "0.05")
EVERY_QUERY = ("--holdout", "0", "--refuse", "off")


def message(error: str) -> str:
    """The last line, where a release is not promoted."""
    *_, last = error.splitlines()
    assert last.startswith("taugate: ")
    return last.removeprefix("taugate: ")


def not_found(data: Path) -> Path:
    """The same data set, whose queries are all labelled with texts of words that they do not have."""
    path = data / "qrels" / "test.tsv"
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    documents = sorted({row.split("\t")[1] for row in rows})
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps({"_id": f"x{each}", "text": f"unheard{each}"}) + "\n" for each in documents)
    path.write_text("\n".join([header, *(row.replace("\td", "\txd") for row in rows)]) + "\n", encoding="utf-8")
    return data


# Labels, options, exit code, state, reasons, what is said before the end, and the end of a release that stays behind.
CASES = [
    (1, (), 4, "provisional", "label 29 more", "accuracy@5 is 1.000 on 1 answerable query"),
    (5, (), 0, "provisional", "label 25 more", ""),
    (10, (), 0, "provisional", "label 20 more", ""),
    (29, (), 0, "provisional", "label 1 more", ""),
    (30, (), 0, "calibrated", "accuracy 1.00 may be anything from 0.88 to 1.00 (95 % interval)", ""),
    (50, (), 0, "calibrated", "may be anything from 0.93 to 1.00 (95 % interval); the papers' rule draws", ""),
    (
        50,
        CERTIFIED,
        3,
        "calibrated",
        "59 are needed",
        "Label 34 more queries with `taugate judge` (9 with --holdout 0 --refuse off)",
    ),
    (150, (), 0, "calibrated", "too easy", ""),
    (150, CERTIFIED, 0, "calibrated", "at most 5 %", ""),
    (300, ("--max-loss", "0.01"), 3, "calibrated", "299 are needed", "Give --holdout 0 --refuse off, or label "),
    (300, ("--max-loss", "0.01", *EVERY_QUERY), 0, "calibrated", "at most 1 %", ""),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, (case[0], *case[1]))))
def test_label_count_decides_outcome(case: tuple, tmp_path: Path, calibrate: Capture) -> None:
    labels, options, expected, state, said, last = case
    data, encoder = small(tmp_path, labels, texts=max(60, labels))
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, *options)
    record = manifest["calibration"]
    assert (code, record["state"], record["human"], record["generated"]) == (expected, state, labels, 0)
    assert record["reasons"] == ([] if state == "calibrated" else ["few_queries"])
    assert said in error
    assert any(line.startswith("PROVISIONAL: ") for line in error.splitlines()) == (state == "provisional")
    promoted = current_id(tmp_path / "r") == manifest["release_id"]
    assert promoted == (expected == 0)
    if not promoted:
        assert last in message(error)
        assert "not promoted" in message(error) or "nothing was promoted" in message(error)
        assert expected != 3 or len(message(error)) <= 300
    report = (tmp_path / "r" / manifest["release_id"] / REPORT).read_text(encoding="utf-8")
    header = report[: report.index("</header>")].replace("\u00a0", " ")  # between a number and its %
    assert ("<b>Provisional.</b>" in header) == (state == "provisional")
    text = re.sub("<[^>]+>", "", header)  # an option is an element, so that it is not broken
    for warning in manifest["query_set"]["warnings"]:
        assert warning[1:].replace("'", "&#39;") in text  # a sentence: it begins with a capital
    if 30 <= labels < 100:
        assert any("95 % interval" in warning for warning in manifest["query_set"]["warnings"])


def test_one_label_without_hit_is_not_promoted(tmp_path: Path, calibrate: Capture) -> None:
    """A release no better than chance: exit code 4, whatever release is current, unless --force is given."""
    data, encoder = small(tmp_path, 1, texts=40)
    code, manifest, error = calibrate(not_found(data), tmp_path / "r", encoder, "--k", "3")
    assert (code, manifest["metrics"]["calibration"]["accuracy"]["mean"]) == (4, 0)
    assert current_id(tmp_path / "r") is None
    assert release_ids(tmp_path / "r") == [manifest["release_id"]]
    for part in ("accuracy@3 is 0.000 on 1 answerable query", "at random get; check the qrels", "--force"):
        assert part in message(error)
    report = (tmp_path / "r" / manifest["release_id"] / REPORT).read_text(encoding="utf-8")
    assert "<b>No better than chance.</b>" in report[: report.index("</header>")]

    code, manifest, error = calibrate(data, tmp_path / "r", encoder, "--k", "3", "--force")
    assert code == 0
    assert current_id(tmp_path / "r") == manifest["release_id"]
    assert history.read(tmp_path / "r").events[-1].forced == ("accuracy not above chance",)


def test_many_labels_without_hits_are_not_promoted(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = small(tmp_path, 60)
    code, manifest, error = calibrate(not_found(data), tmp_path / "r", encoder, "--k", "3")
    assert (code, manifest["calibration"]["state"]) == (4, "calibrated")
    assert "accuracy@3 is 0.000 on 60 answerable queries" in message(error)


@pytest.mark.parametrize("more", [(), CERTIFIED], ids=["papers", "certified"])
def test_unanswerable_labels_alone_are_rejected(more: tuple, tmp_path: Path, capfd: Printed) -> None:
    data, encoder = small(tmp_path, 40, grade=lambda row: 0)
    said = refusal(arguments(data, tmp_path / "r", encoder, *more), tmp_path / "r", capfd)
    assert "no query has a document with score 1 or more" in said


def test_single_document_corpus(tmp_path: Path, calibrate: Capture) -> None:
    """However many queries there are, each of them finds it."""
    data, encoder = small(tmp_path, 40, texts=1)
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, "--k", "1")
    assert (code, manifest["calibration"]["reasons"]) == (0, ["few_documents"])
    assert manifest["calibration"]["accuracy"]["chance"] == 1
    assert "PROVISIONAL: the corpus has no more documents than K = 1" in error
    assert current_id(tmp_path / "r") == manifest["release_id"]


def test_provisional_release_does_not_replace_calibrated(tmp_path: Path, calibrate: Capture, capfd: Printed) -> None:
    (tmp_path / "few").mkdir()
    few, _ = small(tmp_path / "few", 29)
    enough, encoder = small(tmp_path, 60)
    code, _, error = calibrate(few, tmp_path / "r", encoder)
    assert code == 0
    assert any(line.startswith("promotion: the current release is now provisional") for line in error.splitlines())
    code, second, _ = calibrate(few, tmp_path / "r", encoder, "--seed", "1")
    assert (code, current_id(tmp_path / "r")) == (0, second["release_id"]), "one provisional release follows another"
    code, calibrated, _ = calibrate(enough, tmp_path / "r", encoder)
    assert (code, current_id(tmp_path / "r")) == (0, calibrated["release_id"])

    code, third, error = calibrate(few, tmp_path / "r", encoder, "--seed", "2")
    assert (code, current_id(tmp_path / "r")) == (4, calibrated["release_id"])
    for part in (third["release_id"], f"the current release {calibrated['release_id']} is calibrated", "label 1 more"):
        assert part in message(error)
    rule = ("--max-accuracy-drop", "0.9")
    code, _, error = calibrate(few, tmp_path / "r", encoder, "--seed", "2", *rule)
    assert (code, current_id(tmp_path / "r")) == (4, calibrated["release_id"])
    assert "label 1 more" in message(error)

    capfd.readouterr()
    assert cli.main(["release", "promote", third["release_id"], "--releases", str(tmp_path / "r")]) == 4
    assert cli.main(["release", "promote", third["release_id"], "--releases", str(tmp_path / "r"), "--force"]) == 0
    assert history.read(tmp_path / "r").events[-1].forced == ("provisional",)


CONTRADICTIONS = [
    (["--force", "--no-promote"], "--force: --no-promote promotes nothing"),
    (["--force", "--max-accuracy-drop", "auto"], "--force: overrides --max-accuracy-drop"),
]


@pytest.mark.parametrize(("more", "says"), CONTRADICTIONS)
def test_force_conflicts_are_rejected(more: list, says: str, sample: Path, tmp_path: Path, capfd: Printed) -> None:
    asked = arguments(sample, tmp_path / "r", tmp_path / "none", *more)
    assert refusal(asked, tmp_path / "r", capfd).startswith(says)


# The fewest labels with which δ can be certified: all of them certify, or those that a choice and the holdout leave.
FEWEST = [
    ((*EVERY_QUERY, *CERTIFIED), 59),
    (CERTIFIED, RuleVariant(0.3, ThresholdRule.from_options(max_loss=[0.05])).labels_needed(59)),
    ((*EVERY_QUERY, "--max-loss", "0.01"), 299),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "fewest"), FEWEST)
@pytest.mark.parametrize("missing", [0, 1])
def test_minimum_labels_to_certify(
    options: tuple, fewest: int, missing: int, tmp_path: Path, calibrate: Capture
) -> None:
    data, encoder = small(tmp_path, fewest - missing, texts=fewest)
    code, _, error = calibrate(data, tmp_path / "r", encoder, *options)
    assert code == (3 if missing else 0)
    if missing:
        assert "abel 1 more queries with `taugate judge`" in message(error)


OPTIONS = ("--max-loss", "0.05", "--policy", "similarity", "--no-promote")
NOTHING_HELD_OUT = ("--holdout", "0", "--refuse", "off")


def keep_rows(data: Path, rows: list[str]) -> None:
    (data / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n", encoding="utf-8")


def test_few_documents_are_impossible_with_any_labels(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = small(tmp_path, 240, texts=40)
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, *OPTIONS)
    assert code == 5
    last = error.splitlines()[-1]
    assert "with the 40 documents of this corpus, no test can certify a loss of 5 % at 95 %, however many" in last
    assert "and they are too few" in last and len(last) <= 300
    assert "more queries" not in last
    possible = manifest["policy"]["shortage"]["min_loss"]
    assert 1 - 0.05 ** (1 / 40) < possible < 0.15
    assert f"--max-loss {np.ceil(possible * 1e4) / 1e4:g}" in last
    report = (tmp_path / "r" / manifest["release_id"] / REPORT).read_text(encoding="utf-8")
    assert "Label more queries" not in report[: report.index("</header>")]
    assert statement(verify(tmp_path / "r" / manifest["release_id"]).policy).startswith("Nothing is certified: with")


def test_possible_loss_of_few_documents_can_be_certified(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = small(tmp_path, 240, texts=40)
    _, manifest, _ = calibrate(data, tmp_path / "r", encoder, *OPTIONS)
    possible = manifest["policy"]["shortage"]["min_loss"]
    for loss, code in ((possible * 1.01, 0), (possible * 0.99, 5)):
        options = ("--max-loss", f"{loss:.5f}", *OPTIONS[2:], *NOTHING_HELD_OUT)
        assert calibrate(data, tmp_path / "r", encoder, *options)[0] == code


def test_document_with_many_queries_is_impossible_without_cap(tmp_path: Path, calibrate: Capture) -> None:
    """80 of 280 queries are about one document, which could lose them all: 29 % of the queries."""
    data, encoder = small(tmp_path, 280, texts=100)
    repeat_first(data, range(200, 280))
    code, _, error = calibrate(data, tmp_path / "r", encoder, *OPTIONS)
    assert code == 5
    assert "one of them has 29.3 % of the queries" in error
    assert "Give --holdout 0 --refuse off --count-at-most 2, or give --max-loss " in error


def test_advised_queries_certify(tmp_path: Path, calibrate: Capture) -> None:
    """40 documents with two queries each are too few; one query about each of as many others as advised is enough."""
    data, encoder = small(tmp_path, 200, copies=2, texts=200)
    rows = [f"q{row}-{copy}\td{row}\t1" for row in range(40) for copy in range(2)]
    keep_rows(data, rows)
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, *OPTIONS, *NOTHING_HELD_OUT)
    assert code == 3
    advice = r"Label (\d+) more queries with `taugate judge`, about documents that have none, for a chance of 8 in 10"
    (more,) = re.findall(advice, error)
    shortage = manifest["policy"]["shortage"]
    assert (shortage["queries"], shortage["documents"]) == (int(more), int(more))
    assert len(shortage["lowest"]) == 20
    report = (tmp_path / "r" / manifest["release_id"] / REPORT).read_text(encoding="utf-8")
    assert ", ".join(f"<code>{name}</code>" for name in shortage["lowest"]) in report
    assert shortage["lowest"][-1] not in error
    fewer = [*rows, *(f"q{row}-0\td{row}\t1" for row in range(40, 39 + int(more)))]
    keep_rows(data, fewer)
    assert calibrate(data, tmp_path / "r", encoder, *OPTIONS, *NOTHING_HELD_OUT)[0] == 3
    keep_rows(data, [*fewer, f"q{39 + int(more)}-0\td{39 + int(more)}\t1"])
    assert calibrate(data, tmp_path / "r", encoder, *OPTIONS, *NOTHING_HELD_OUT)[0] == 0


def test_named_options_certify(tmp_path: Path, calibrate: Capture) -> None:
    """100 documents, one with seven queries, the others with two, 30 % held out: every option named is enough.

    Without a cap of three, the default falls to two, which is enough.
    """
    data, encoder = small(tmp_path, 205, texts=100)
    repeat_first(data, range(200, 205))
    asked = ("--max-loss", "0.06", "--count-at-most", "3", *OPTIONS[2:])
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, *asked)
    assert code == 3
    assert len(manifest["policy"]["shortage"]["options"]) >= 2
    assert f"Give {manifest['policy']['shortage']['options'][0]}, or " in error
    for options in manifest["policy"]["shortage"]["options"]:
        assert calibrate(data, tmp_path / "r", encoder, *asked, *options.split())[0] == 0, options
    assert calibrate(data, tmp_path / "r", encoder, "--max-loss", "0.06", *OPTIONS[2:])[0] == 0


def test_certificate_lowers_rho_that_loses_too_many_answers(
    tmp_path: Path, calibrate: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, encoder = small(tmp_path, 300, texts=300)
    monkeypatch.setattr(
        "taugate.evidence.abstention.refusal.choose_rho",
        lambda right, *_: float(np.quantile(right, 0.2)) if len(right) else 0.0,  # halves of the corpus find no answer
    )
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, *OPTIONS)
    assert (code, manifest["policy"]["tau"]) == (0, NO_CUT)
    said = re.search(
        r"warning: the certificate lowers ρ from ([\d.]+) to ([\d.]+), and no result is dropped: the higher ρ refuses "
        r"(\d+) of the 210 certifying queries that find an answer; --refuse off certifies a cut instead",
        error,
    )
    assert said is not None
    assert float(said[1]) > float(said[2]) == pytest.approx(manifest["refusal"]["rho"], abs=1e-4)
    assert int(said[3]) > 0.05 * 210
    assert manifest["policy"]["certificates"][0]["bound"] <= 0.05
    shipped = [manifest["refusal"]["evidence"][kind] for kind in ("off_topic", "request")]
    assert all(kind["uncertified"] >= kind["refused"] for kind in shipped)
    assert "τ = −∞" in error
    without = calibrate(data, tmp_path / "r", encoder, *OPTIONS, "--refuse", "off")[1]
    assert without["policy"]["tau"] > NO_CUT


def test_drawn_queries_only_lack_labels(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = small(tmp_path, 50, texts=20)
    code, _, error = calibrate(data, tmp_path / "r", encoder, *OPTIONS, *NOTHING_HELD_OUT, "--drawn", "queries")
    assert code == 3
    assert "59 are needed" in error


@pytest.mark.parametrize("sizes", [np.ones(80), np.repeat([1, 7], [60, 5]), np.repeat([1, 2, 90], [300, 40, 1])])
def test_evidence_bound_is_worst_chance_of_no_loss(sizes: np.ndarray) -> None:
    """No way to lose δ has a larger chance that nothing is lost, and one has that chance; the truth is by search."""
    delta, rng = 0.05, np.random.default_rng(0)
    bound = evidence_bound(sizes.astype(np.float64), float(sizes.sum()), delta)
    for _ in range(2000):
        part = rng.random(len(sizes)) ** rng.exponential(3) * (rng.random(len(sizes)) < rng.random())
        if not part.any():
            continue
        factor = delta * sizes.sum() / (sizes @ part)
        if factor * part.max() < 1:
            assert -np.log1p(-factor * part).sum() >= bound - 1e-9
    equal = np.full(len(sizes), delta)
    if np.ptp(sizes) == 0:
        assert bound == pytest.approx(-np.log1p(-equal).sum())
        assert np.exp(-bound) == pytest.approx(stats.binom.pmf(0, len(sizes), delta))
