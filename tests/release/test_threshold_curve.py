"""Points of the threshold curve equal cuts that are counted query by query."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.policy.names import PolicyKind
from taugate.registry.catalog import find
from taugate.release.queries import Reference, quantiles, threshold_curve
from taugate.retrieval.reader import load


def drawn(queries: int, k: int, seed: int) -> Reference:
    """Similarities of queries of which two thirds find their correct document, with some ties."""
    rng = np.random.default_rng(seed)
    top = -np.sort(-rng.uniform(-0.2, 1, (queries, k)).round(2).astype(np.float32), axis=1)
    found = rng.random(queries) < 2 / 3
    correct = np.where(found, top[np.arange(queries), rng.integers(0, k, queries)], top[:, -1] - np.float32(0.005))
    kept = np.zeros(queries, dtype=np.int64)
    return Reference(top, correct.astype(np.float32), rng.uniform(-1, 1, queries).astype(np.float32), kept, kept > 0)


def counted(reference: Reference, kind: PolicyKind, tau: float) -> tuple[float, float]:
    """Kept and loss at a threshold, a query at a time."""
    results = kept = lost = 0
    for scores, correct in zip(reference.top.tolist(), reference.correct.tolist(), strict=True):
        best = scores[0] if kind == "relative" else 1.0
        decide = (
            (lambda score, best=best: np.float32(score / best) if best > 0 else np.float32(0))
            if (kind == "relative")
            else np.float32
        )
        results += len(scores)
        kept += sum(bool(decide(score) >= np.float32(tau)) for score in scores)
        lost += correct in scores and not decide(correct) >= np.float32(tau)
    return kept / results, lost / len(reference)


@pytest.mark.parametrize("kind", ["similarity", "relative", "none"])
@pytest.mark.parametrize(("queries", "k"), [(200, 5), (1, 1), (3, 40)])
def test_curve_points_equal_cuts(kind: PolicyKind, queries: int, k: int) -> None:
    reference = drawn(queries, k, queries + k)
    curve = threshold_curve(reference, kind, 0.35)
    for point in curve:
        assert (point.kept, point.loss) == pytest.approx(counted(reference, kind, point.tau), abs=1e-12)
    assert np.float32(0.35) in [point.tau for point in curve], "τ itself is on it"
    taus, kept, loss = (np.array([getattr(point, name) for point in curve]) for name in ("tau", "kept", "loss"))
    assert (np.diff(taus) > 0).all() and (np.diff(kept) <= 0).all() and (np.diff(loss) >= 0).all()
    assert (kept[-1], len(curve) <= 203) == (0, True)
    if kind != "relative":
        assert (kept[0], loss[0]) == (1, 0)
    assert loss[-1] == np.mean([correct in row for row, correct in zip(reference.top, reference.correct, strict=True)])


def test_relevance_cut_keeps_any_relevant_document() -> None:
    rng = np.random.default_rng(4)
    relevance = rng.random((300, 5)).round(2).astype(np.float32)
    relevant = rng.random((300, 5)) < 0.3
    best = np.where(relevant, relevance, np.float32(0)).max(axis=1)
    curve = threshold_curve(replace(drawn(300, 5, 4), relevance=relevance, correct_relevance=best), "probability", 0.35)
    found = relevant.any(axis=1)
    for point in curve:
        kept = relevance >= np.float32(point.tau)
        loss = (found & ~(kept & relevant).any(axis=1)).mean()
        assert (point.kept, point.loss) == pytest.approx((kept.mean(), loss), abs=1e-12)
    assert np.float32(0.35) in [point.tau for point in curve], "τ itself is on it"
    assert (curve[0].kept, curve[0].loss, curve[-1].kept) == (1, 0, 0)
    assert curve[-1].loss == pytest.approx(found.mean())
    assert len(curve) <= 203


def test_curve_without_relevance_is_empty() -> None:
    assert threshold_curve(drawn(20, 5, 0), "probability", 0.5) == []


def test_infinite_shares_are_dropped() -> None:
    top = np.array([[1e-30, -1], [0.5, 0.4]], dtype=np.float32)
    one, kept = np.array([1e-30, 0.5], dtype=np.float32), np.array([1, 1])
    curve = threshold_curve(Reference(top, one, one, kept, kept > 0), "relative", 0.9)
    assert all(np.isfinite(point.tau) for point in curve)
    (point,) = (point for point in curve if point.tau == np.float32(0.9))
    assert (point.kept, point.loss) == (0.5, 0)


def test_quantiles_equal_percentiles() -> None:
    values = np.arange(101, dtype=np.float32)[::-1]
    assert quantiles(values) == pytest.approx(range(101))


def test_curve_contains_release_figures(sample: Path, encoder: Path, tmp_path: Path) -> None:
    """Without refusals, which the curve does not count."""
    command = ["calibrate", str(sample), "--releases", str(tmp_path), "--encoder", str(encoder), "--refuse", "off"]
    assert cli.main(command) == 0
    release = load(find(tmp_path), 1)
    manifest = release.manifest
    assert manifest.policy.tau is not None
    at = {point.tau: point for point in threshold_curve(release.reference, manifest.policy.kind, manifest.policy.tau)}
    point, measured = at[float(np.float32(manifest.policy.tau))], manifest.metrics["calibration"]
    assert point.kept == pytest.approx(measured.kept_fraction, abs=1e-12)
    found = max(value.loss for value in at.values())
    assert point.loss == pytest.approx(found - release.reference.correct_kept.mean(), abs=1e-12)
