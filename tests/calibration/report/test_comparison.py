"""Releases beside each other: like is compared with like."""

import json
from pathlib import Path

import pytest

from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.registry.catalog import current_id
from taugate.release.manifest import Manifest
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
