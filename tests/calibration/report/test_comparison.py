"""Releases beside each other: like is compared with like."""

import json
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.registry.catalog import current_id
from taugate.registry.correlations import correlations
from taugate.retrieval.release.manifest import Manifest
from tests.adaptation.records import adaptation, measures
from tests.calibration.report.html_page import check
from tests.calibration.report.studies import Studied


@pytest.fixture(scope="module")
def manifest(releases: Path) -> Manifest:
    return Manifest.model_validate(json.loads((releases / current_id(releases) / "manifest.json").read_bytes()))


def changed(manifest: Manifest, **fields: object) -> Manifest:
    """`part__name=value` replaces a field of a part."""
    for path, value in fields.items():
        part, _, name = path.partition("__")
        manifest = manifest.model_copy(update={part: getattr(manifest, part).model_copy(update={name: value})})
    return manifest


def encoders(manifest: Manifest, accuracies: list[float], coes: list[float]) -> list[Manifest]:
    found = []
    for number, (accuracy, coe) in enumerate(zip(accuracies, coes, strict=True)):
        metrics = manifest.metrics["calibration"]
        metrics = metrics.model_copy(
            update={
                "accuracy": metrics.accuracy.model_copy(update={"mean": accuracy}),
                "coe": metrics.coe.model_copy(update={"mean": coe}),
            }
        )
        other = changed(manifest, encoder__sha256=str(number))
        found.append(other.model_copy(update={"metrics": {"calibration": metrics}}))
    return found


def test_correlations_match_pearson(manifest: Manifest) -> None:
    accuracies, coes = [0.5, 0.7, 0.6, 0.9], [0.8, 0.85, 0.9, 0.95]
    (found,) = correlations(encoders(manifest, accuracies, coes))
    assert (found.releases, found.k, found.data) == (4, 5, manifest.data.name)
    assert found.values["accuracy", "coe"] == pytest.approx(np.corrcoef(accuracies, coes)[0, 1])
    assert found.values["accuracy", "roe"] is None, "one ROE for all of them"


def test_constant_measure_has_no_correlation(manifest: Manifest) -> None:
    """Also where the mean of equal numbers is not that number, in binary."""
    (found,) = correlations(encoders(manifest, [0.95, 0.95, 0.95], [0.1, 0.2, 0.4]))
    assert found.values["accuracy", "coe"] is None


def test_adapted_encoders_use_adaptation_measures(manifest: Manifest) -> None:
    accuracies, losses = [0.5, 0.7, 0.6, 0.9], [-0.01, -0.03, -0.04, -0.02]
    plain = encoders(manifest, accuracies, [0.8, 0.85, 0.9, 0.95])
    adapted = [
        release.model_copy(update={"adaptation": adaptation(measures(loss))})
        for release, loss in zip(plain, losses, strict=True)
    ]
    (found,) = correlations([*adapted[:3], plain[3]])
    assert (found.releases, found.adapted) == (4, 3)
    general = np.corrcoef(accuracies[:3], losses[:3])[0, 1]
    assert found.values["accuracy", "general NDCG@10"] == pytest.approx(general)
    assert found.values["accuracy", "separation"] is None, "one separation for all of them"
    assert found.values["accuracy", "β"] is None, "no power law was fitted"
    (found,) = correlations([*adapted[:2], *plain[2:]])
    assert ("accuracy", "separation") not in found.values, "two are too few"
    (found,) = correlations(plain)
    assert found.adapted == 0


@pytest.mark.parametrize(
    "other", [{"bootstrap__seed": 1}, {"bootstrap__holdout": 0.0}, {"policy__k": 20}, {"policy__metric": "ndcg"}]
)
def test_incomparable_releases_are_not_correlated(manifest: Manifest, other: dict) -> None:
    releases = encoders(manifest, [0.5, 0.6, 0.7], [0.1, 0.2, 0.4])
    assert correlations([*releases[:2], changed(releases[2], **other)]) == []
    assert len(correlations(releases)) == 1


def test_different_holdout_is_not_same_queries(manifest: Manifest) -> None:
    assert same_queries(manifest, manifest)
    for other in ({"bootstrap__seed": 1}, {"bootstrap__holdout": 0.0}, {"data__split": "train"}):
        assert not same_queries(manifest, changed(manifest, **other))
    rows = {row.label: row.cells() for row in compare_releases(manifest, changed(manifest, bootstrap__seed=1))}
    assert rows["seed"] == ("0", "1", "+1")


def test_comparison_with_parent_release(probability: Studied, papers: Studied) -> None:
    parent = papers.manifest()
    rows = compare_releases(parent, probability.found.manifest)
    assert rows == compare_releases(parent.model_dump(), probability.manifest().model_dump())
    by_label = {(row.group, row.label): row for row in rows}
    assert by_label["policy", "kind"].cells() == ("similarity", "probability", "changed")
    assert by_label["policy", "τ"].difference is None  # a similarity and a probability
    assert by_label["data", "corpus digest"].cells()[2] == "="
    kept = by_label["heldout", "results kept"]
    before, after = (each.found.manifest.metrics["heldout"].kept_fraction for each in (papers, probability))
    assert (kept.old, kept.new, kept.difference) == (before, after, after - before)
    page = check(probability.page(parent))
    assert parent.release_id in page.text["comparison"]
    assert kept.cells()[2] in page.text["comparison"]
    assert same_queries(parent, probability.found.manifest)
    assert "same documents and labels" in page.text["comparison"]
    alone = parent.model_dump() | {"metrics": {"calibration": parent.metrics["calibration"].model_dump()}}
    assert {row.new for row in compare_releases(parent, alone) if row.group == "heldout"} == {None}
    assert all(row.cells()[2] == "=" for row in compare_releases(parent, parent))
    assert compare_releases({}, {}) != [] and not same_queries({}, {})
