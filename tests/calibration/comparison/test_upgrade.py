"""`taugate release diff` of two runs of the same questions: the old retriever, and the new one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from taugate.calibration.comparison.upgrade import Upgrade, threshold_that_keeps
from taugate.cli import main as cli
from taugate.registry.catalog import find, release_ids
from taugate.retrieval.gate import Gate
from tests.calibration.commands import Printed
from tests.runs import Found, dense_results, write_json

Calibrate = Callable[[str, Sequence[Found]], Path]
OPTIONS = ("--policy", "similarity", "--max-loss", "0.08", "--drawn", "queries", "--holdout", "0", "--new-encoder")


@pytest.fixture(scope="module")
def results(sample: Path, releases: Path) -> list[Found]:
    return dense_results(sample, releases)


@pytest.fixture
def calibrate(sample: Path, tmp_path: Path) -> Calibrate:
    """Calibrate a run in one directory; returns the new release."""

    def run(name: str, results: Sequence[Found]) -> Path:
        before = {*release_ids(tmp_path)}
        path, qrels = write_json(tmp_path / f"{name}.jsonl", results), sample / "qrels" / "test.tsv"
        assert cli.main(["calibrate-run", str(path), str(qrels), "--releases", str(tmp_path), *OPTIONS]) == 0
        (new,) = {*release_ids(tmp_path)} - before
        return find(tmp_path, new)

    return run


def test_new_scale_has_an_equivalent_threshold(
    calibrate: Calibrate, results: list[Found], tmp_path: Path, capfd: Printed
) -> None:
    old = calibrate("old", results)
    new = calibrate("new", [replace(found, scores=[0.5 * score for score in found.scores]) for found in results])
    upgrade = Upgrade.between(old, new)
    assert upgrade is not None
    assert [verdict.finding for verdict in upgrade.verdicts] == ["holds"] * 3
    assert {verdict.test for verdict in upgrade.verdicts} == {"paired"}
    assert upgrade.equal_tau == pytest.approx(0.5 * (upgrade.old.policy.tau or 0), abs=0.005)
    capfd.readouterr()
    assert cli.main(["release", "diff", old.name, new.name, "--releases", str(tmp_path)]) == 0
    shown = capfd.readouterr().out
    assert shown.count(": holds, ") == 3
    old_tau = f"{upgrade.old.policy.tau:.4f}"
    assert f"old τ {old_tau} (similarity) keeps {upgrade.kept[0]:.2f} of 5 results, as new τ 0." in shown


def test_worse_retriever_is_found(calibrate: Calibrate, results: list[Found]) -> None:
    worse = [replace(found, ids=[*found.ids[1:], found.ids[0]]) for found in results]
    worse = [replace(found, ids=[*found.ids[3:], *found.ids[:3]]) for found in worse]
    upgrade = Upgrade.between(calibrate("old", results), calibrate("new", worse))
    assert upgrade is not None
    assert upgrade.verdicts[0].finding == "worse"


def test_equal_threshold_keeps_as_many_results(calibrate: Calibrate, results: list[Found]) -> None:
    gate = Gate.load(calibrate("old", results))
    kept = float(gate.reference.kept.mean())
    tau = threshold_that_keeps(kept, gate.reference, gate.manifest.policy)
    assert tau is not None
    assert (gate.reference.top >= tau).sum() == gate.reference.kept.sum()


def test_searched_release_has_no_upgrade(releases: Path, calibrate: Calibrate, results: list[Found]) -> None:
    assert Upgrade.between(find(releases), find(releases)) is None
    assert Upgrade.between(find(releases), calibrate("old", results)) is None
