"""Nothing can be certified: too few labels, with the number that is missing, or too few documents for any test."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from taugate.calibration.report.terminal import statement
from taugate.calibration.threshold.shortage import evidence_bound
from taugate.policy.names import NO_CUT
from taugate.release.layout import REPORT
from taugate.release.verify import verify
from tests.calibration.commands import Capture, repeat_first, small

OPTIONS = ("--max-loss", "0.05", "--policy", "similarity", "--no-promote")
NOTHING_HELD_OUT = ("--holdout", "0", "--refuse", "off")


@pytest.fixture
def calibrate(capfd: pytest.CaptureFixture[str]) -> Capture:
    return Capture(capfd)


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
