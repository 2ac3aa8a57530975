"""The five lines at the end of a calibration, for each way in which it can end."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from taugate.calibration.comparison.publish import Promotion, Published
from taugate.cli.terminal.summary import CalibratedRelease, summary
from taugate.registry.catalog import find
from taugate.retrieval.release.verify import verify
from tests.retrieval.release.clones import SUMMARY, clone, with_refusals, without_refusals

RELEASES = Path("my releases")


@pytest.fixture
def first(releases: Path) -> CalibratedRelease:
    """The sample's release as the first of its directory."""
    manifest = verify(find(releases))
    path = RELEASES / manifest.release_id
    return CalibratedRelease(manifest, path, Promotion(), Published(), None)


def test_summary_without_refusals(first: CalibratedRelease) -> None:
    manifest = first.manifest.model_copy(update={"refusal": None, "summary": None})
    lines = summary(replace(first, manifest=manifest))
    part = manifest.metrics["heldout"]
    assert lines["Measured"] == (
        f"503 labelled queries on 503 documents ({manifest.data.name}, split test). 70 % of the queries choose the "
        "threshold, 30 % check it."
    )
    assert lines["Threshold"] == (
        f"{manifest.policy.tau:.4f}. Results that score lower are dropped. {100 * part.kept_fraction:.1f} % of "
        f"the results are kept, and {100 * part.accuracy_at_tau.mean:.1f} % of the queries find a relevant document "
        f"({100 * part.accuracy.mean:.1f} % without a threshold)."
    )
    assert lines["Promotion"] == "Promoted: no release was current before."
    assert lines["Report"] == f"my releases/{manifest.release_id}/report.html"
    assert lines["Next"] == "taugate serve --releases 'my releases'"
    assert [*summary(first, with_next_steps=False)] == ["Result", "Measured", "Threshold", "Promotion"]


def test_summary_of_replaced_release(first: CalibratedRelease) -> None:
    lines = summary(replace(first, previous="old"))
    assert lines["Promotion"] == "Promoted in place of old: it has a threshold, and no promotion rule was given."


def test_summary_with_no_promote(first: CalibratedRelease) -> None:
    lines = summary(replace(first, request=Promotion(requested=False), previous="old"))
    assert lines["Promotion"] == "Not promoted, because of --no-promote. old remains the current release."
    assert lines["Next"] == f"taugate release promote {first.path.name} --releases 'my releases'"


def test_summary_without_safe_threshold(first: CalibratedRelease) -> None:
    policy = first.manifest.policy.model_copy(update={"kind": "none", "tau": None})
    without = first.manifest.model_copy(update={"policy": policy})
    lines = summary(replace(first, manifest=without, ending=Published(False, 3, "why", "no cut")))
    assert lines["Threshold"].startswith("None: an answered question keeps all results. A question that scores below ρ")
    without = without.model_copy(update={"refusal": None})
    lines = summary(replace(first, manifest=without, ending=Published(False, 3, "why", "no cut")))
    assert lines["Threshold"].startswith("None. Every result is kept, and ")
    assert lines["Promotion"] == "Not promoted, for the reason below. No release is current yet."
    assert lines["Next"] == "Read the message below, and the report."


def test_summary_without_holdout(first: CalibratedRelease) -> None:
    bootstrap = first.manifest.bootstrap.model_copy(update={"holdout": 0.0})
    lines = summary(replace(first, manifest=first.manifest.model_copy(update={"bootstrap": bootstrap})))
    assert lines["Measured"].endswith(
        "The same queries choose and check the threshold, so expect slightly worse results."
    )


def test_summary_compares_with_current_release(first: CalibratedRelease, releases: Path, tmp_path: Path) -> None:
    older = clone(shutil.copytree(releases, tmp_path / "releases") / first.path.name, 1, without_refusals)
    changed = json.loads(first.manifest.model_dump_json())
    with_refusals(changed)
    metrics = changed["metrics"]["heldout"]
    metrics["kept_fraction"] = 0.5
    metrics["accuracy_at_tau"]["mean"] = metrics["accuracy"]["mean"] - 0.015
    manifest = first.manifest.model_validate(changed)
    path = tmp_path / "releases" / manifest.release_id
    lines = summary(replace(first, manifest=manifest, path=path, previous=older))
    before = first.manifest.metrics["heldout"]
    assert [*lines][:3] == ["Result", "Measured", "Threshold"]
    assert lines["Result"] == SUMMARY
    assert lines["Threshold"] == (
        f"{manifest.policy.tau:.4f}. Results that score lower are dropped. A question that scores below "
        "ρ = 0.3906 gets no result; it is scored by its best similarity."
    )
    assert lines["Changes"] == f"From {older} to this release, measured on the same queries and documents:"
    assert lines["Kept"] == f"{100 * before.kept_fraction:.1f} % → 50.0 % of the results are kept."
    lost = 100 * (before.accuracy.mean - before.accuracy_at_tau.mean)
    assert lines["Lost"] == f"{lost:.1f} % → 1.5 % of the questions lose their answer."
    assert lines["Refused"] == ("– → 95.0 % of the off-topic questions are refused, – → 70.0 % of the near misses.")


def test_summary_without_changes_compares_nothing(first: CalibratedRelease, releases: Path) -> None:
    same = replace(first, path=releases / first.path.name, previous=first.path.name)
    assert not {"Changes", "Kept", "Lost", "Refused"} & {*summary(same)}
