"""Drift of a fused list: another k of the fusion, and another model behind the ranks."""

from dataclasses import replace

import numpy as np
import pytest

from taugate.drift.monitor import Monitor
from taugate.drift.observations import Observations
from taugate.drift.signals import query_signals, theta_of
from taugate.policy.score_relevance import LOWEST, component_means
from taugate.release.queries import Reference

K, DOCUMENTS, CALIBRATION, LIVE = 5, 30, 1000, 1500


def fused(queries: int, constant: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fuse two lists by reciprocal ranks; return (n, K) scores, and the mean scores of both lists, (n, 2)."""
    rng = np.random.default_rng(seed)
    relevance = 2 * rng.normal(size=(queries, 1, DOCUMENTS))
    scores = (relevance + rng.normal(size=(queries, 2, DOCUMENTS))).astype(np.float32)
    ranks = (-scores).argsort(axis=2).argsort(axis=2) + 1
    reciprocal = (1 / (constant + ranks)).sum(axis=1).astype(np.float32)
    first = (-reciprocal).argsort(axis=1)[:, :K]
    lists = {name: np.take_along_axis(scores[:, row], first, axis=1) for row, name in enumerate(("bm25", "dense"))}
    return np.take_along_axis(reciprocal, first, axis=1), component_means(lists, K)


@pytest.fixture(scope="module")
def reference() -> Reference:
    top, components = fused(CALIBRATION, 60, 0)
    kept = np.full(CALIBRATION, K)
    return Reference(top, top[:, 0], np.empty(0, np.float32), kept, kept > 0, components=components)


def alarm_after(reference: Reference, live: Observations) -> int | None:
    changes = Monitor(reference, theta_of(reference, 5)).update(live)
    return next((change.row + 1 for change in changes if change.on), None)


def observed(constant: int) -> Observations:
    top, components = fused(LIVE, constant, 1)
    columns = np.arange(LIVE, dtype=np.float64), np.arange(LIVE, dtype=np.uint64)
    return Observations(*columns, top, np.empty((LIVE, 0), np.float32), np.full(LIVE, K, np.float32), components)


def test_same_fusion_raises_no_alarm(reference: Reference) -> None:
    assert alarm_after(reference, observed(60)) is None


def test_next_constant_of_the_fusion_raises_an_alarm(reference: Reference) -> None:
    assert (alarm_after(reference, observed(61)) or LIVE) <= 1000


@pytest.mark.parametrize("change", [lambda means: means + 1, lambda means: np.full_like(means, LOWEST)])
def test_changed_component_scores_behind_equal_ranks_raise_an_alarm(reference: Reference, change) -> None:
    live = observed(60)
    components = np.column_stack([live.components[:, 0], change(live.components[:, 1])])
    assert (alarm_after(reference, replace(live, components=components)) or LIVE) <= 1000
    assert alarm_after(replace(reference, components=None), replace(live, components=components[:, :0])) is None


def test_scores_without_frequent_values_are_watched_as_before(reference: Reference) -> None:
    rng = np.random.default_rng(2)
    distinct = (reference.top + rng.uniform(0, 1e-4, reference.top.shape)).astype(np.float32)
    signal, *_ = query_signals(replace(reference, top=distinct, components=None), 0.0)
    assert len(signal.means) == 10
