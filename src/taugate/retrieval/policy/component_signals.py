"""Signals of a query from the scores of a fused list: those of the fusion, and those of its components.

The best score of a rank fusion says little about the query, because some document is always first. The component scores
tell how similar the best documents are, and how far they stand out. A component that did not return a document has no
score for it: it counts as the lowest score that the component gave to a result of the query.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from taugate.retrieval.policy.background import Float64
from taugate.retrieval.vectors.similarity import Float32

Components = Mapping[str, Float32]
NO_COMPONENTS: Components = MappingProxyType({})
# No signal that was tried beside these helped with 60 to 800 queries of scifact and of squad_v2_dev: gaps between
# results, deviations, whether the components agree, missing scores; nor did boosted trees, or 20 results for five.
LOWEST = float(np.finfo(np.float32).min)
_SIGNALS = ("best_score", "gap_to_mean")


def component_signal_names(components: Iterable[str]) -> tuple[str, ...]:
    """Return the names of all signals, in their order, given the names of the component scores."""
    return ("best_similarity", *(f"{name}: {signal}" for name in components for signal in _SIGNALS))


def component_signals(scores: Float64, components: Components, floors: Mapping[str, float]) -> dict[str, Float64]:
    """Compute the signals of n queries by name, (n,) float64 each.

    Args:
        scores: (n, K) float64 fused scores of the first K results, best first.
        components: Scores of all results by name, (n, w) float32 each, NaN for a missing one.
        floors: For each component, the score of a result if no result of the query has one.
    """
    k = scores.shape[1]
    signals = {"best_similarity": scores[:, 0]}
    for name, floor in floors.items():
        values = fill_missing(components[name][:, :k].astype(np.float64), floor, k)
        best = values.max(axis=1)
        signals |= zip((f"{name}: {signal}" for signal in _SIGNALS), (best, best - values.mean(axis=1)), strict=True)
    return signals


def component_means(components: Components, k: int) -> Float32:
    """Return the mean score of each of C components among the first k results, (n, C) float32; LOWEST without any.

    Args:
        components: Scores of all results by name, (n, w) float32 each, NaN for a missing one.
        k: Number of results, w ≥ 1.
    """
    means = []
    for values in components.values():
        given = ~np.isnan(values[:, :k])
        total = np.where(given, values[:, :k], 0).sum(axis=1, dtype=np.float64)
        means.append(np.where(given.any(axis=1), total / np.maximum(given.sum(axis=1), 1), LOWEST))
    return np.array(means, dtype=np.float32).T


def fill_missing(given: Float64, floor: float, k: int) -> Float64:
    """Return the scores of a component, (n, w) float64, with a number for a missing one.

    Args:
        given: (n, w) float64, NaN for a missing score.
        floor: What a score counts as if none of the first k results has one.
        k: A missing score counts as the lowest of the first k results.
    """
    missing = np.isnan(given)
    lowest = np.where(missing[:, :k], np.inf, given[:, :k]).min(axis=1, keepdims=True)
    return np.where(missing, np.where(np.isinf(lowest), floor, lowest), given)
