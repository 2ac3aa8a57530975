"""Figures and tables of the report."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.calibration.report.figures import density, drawn, spaced
from taugate.calibration.report.tradeoff import lost_queries, min_kept, rule_standings, shortened, shown_queries
from taugate.policy.policy import keep
from taugate.registry.catalog import current_id
from taugate.release.manifest import Manifest
from tests.calibration.report.html_page import check
from tests.calibration.report.studies import Studied


def test_density_matches_scipy() -> None:
    values = np.random.default_rng(0).normal(0.4, 0.1, 3000).astype(np.float32)
    xs, ys = density(values, -0.2, 1.0)
    assert np.abs(ys - gaussian_kde(values)(xs)).max() < 0.01 * ys.max()
    assert ys.sum() * (xs[1] - xs[0]) == pytest.approx(1, abs=1e-3)
    assert np.isfinite(density(np.full(1, 0.3, dtype=np.float32), 0.0, 1.0)[1]).all()


def test_thresholds_include_tau() -> None:
    scores = np.random.default_rng(0).random((100, 5), dtype=np.float32)
    for kind in ("similarity", "probability"):
        for tau in (None, np.float32(0.3), np.float32(1e-7)):
            found = spaced(scores, kind, tau)
            assert (np.diff(found) > 0).all() and len(found) <= 61 and (tau is None or tau in found)
            assert found[-1] >= 0.99 and found[0] <= max(scores.min(), 1e-4)
    assert len(drawn(np.zeros((5000, 100), dtype=np.int64))) == 1000


def test_rule_standings_match_manifest(probability: Studied) -> None:
    manifest, found = probability.manifest(), probability.found
    in_force, *others = rule_standings(found, shown_queries(found))
    assert in_force.kept == manifest.metrics["heldout"].kept_fraction
    assert [(each.kept, each.loss) for each in others] == [
        (each.kept_fraction, each.loss) for each in manifest.alternatives
    ]
    assert [each.name for each in others] == ["The papers' rule (bootstrap)", "Risk control, with high probability"]
    assert in_force.name == "Risk control, on average"


def test_curves_pass_through_rules(probability: Studied) -> None:
    found = probability.found
    queries = shown_queries(found)
    for rule in rule_standings(found, queries):
        kind = rule.record.kind if rule.in_force else rule.record.policy
        if rule.record.tau is None:
            continue
        losses, kept = min_kept(queries.queries, kind, "accuracy", 1.0)
        at = int(np.searchsorted(losses, rule.loss + 1e-9, side="right")) - 1
        assert losses[at] == pytest.approx(rule.loss) and kept[at] <= rule.kept + 1e-9


def test_min_kept_is_minimal(papers: Studied) -> None:
    queries = shown_queries(papers.found).queries
    decisions = queries.decisions("similarity")
    losses, kept = min_kept(queries, "similarity", "accuracy", 1.0)
    masks = [keep(decisions, threshold) for threshold in np.unique(decisions)]
    lost_by = np.array([queries.judged.lost("accuracy", mask).mean() for mask in masks])
    share = np.array([mask.mean() for mask in masks])
    for loss, least in zip(losses[1:-2], kept[1:-2], strict=True):  # the last step is above every score
        assert least == pytest.approx(share[lost_by <= loss + 1e-9].min())


def test_lost_queries_match_brute_force(probability: Studied) -> None:
    found, dataset = probability.found, probability.found.search.dataset
    report = lost_queries(found)
    scored, tau = found.scored, found.threshold
    assert scored.relevance is not None and tau is not None
    expected = []
    for row, query in enumerate(dataset.answerable):
        positions = scored.judged.top.positions[row].tolist()
        hits = [rank for rank, position in enumerate(positions) if position in query.relevant]
        if hits and not any(scored.relevance[row, rank] >= tau for rank in hits):
            expected.append((-float(scored.judged.top.scores[row, hits[0]]), row, query.id))
    heldout = set(found.parts["heldout"].members.tolist())
    checked = found.manifest.checked
    assert checked is not None
    assert checked.lost == sum(row in heldout for _, row, _ in expected)
    ordered = sorted(expected, key=lambda lost: (lost[1] not in heldout, lost))
    assert len(expected) > 20
    assert [each.id for each in report] == [name for _, _, name in ordered[:20]]
    html = probability.page()
    assert f"{checked.lost} of {checked.answers} held-out queries" in check(html).text["lost"]
    assert html.split('<section id="lost">')[1].split("</section>")[0].count("<details>") == 20
    for each in report:
        assert (each.top is None) == (each.lost.rank == 1) and each.cause == "dropped"
        assert each.lost.relevance is not None and each.lost.relevance < float(tau)


def test_long_texts_are_cut_at_words() -> None:
    assert shortened("one\n two\x00three ") == "one two three"
    assert shortened("word " * 100, 12) == "word word …"
    assert shortened("x" * 400) == "x" * 300 + " …"


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
