"""τ(ψ): the highest percentile of Γ that leaves the metric within its own 95 % interval (thresholds paper §2.2)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.bootstrap import Rows, bootstrapped
from taugate.calibration.metrics.judged import JudgedQueries
from taugate.retrieval.policy.policy import Metric, keep
from taugate.retrieval.vectors.similarity import Float32

PERCENTILES = np.arange(101)


@dataclass(frozen=True)
class Threshold:
    """τ in units of similarity, unrounded, and the percentile ψ of Γ that it is."""

    tau: float
    psi: int


def gamma(queries: JudgedQueries, rows: Rows) -> Float32:
    """Γ: γ_j, the lowest top-K similarity in bootstrap j. The lowest of a query is its last. Returns (m,) float32."""
    lowest: Float32 = queries.top.scores[:, -1][rows].min(axis=1)
    return lowest


def bootstrap_threshold(queries: JudgedQueries, rows: Rows, metric: Metric = "accuracy") -> Threshold:
    """The highest τ(ψ), ψ in 0, 1, …, 100, whose mean bootstrapped metric is not below the unthresholded interval.

    τ(0) loses nothing in any bootstrap, as no similarity of theirs is below the smallest of Γ. It is the answer, too,
    where not even the unthresholded mean reaches its own interval: with accuracy near 1, the 2.5th percentile can be 1.
    """
    lower = bootstrapped(queries.metric(metric), rows).lower
    candidates: NDArray[np.float64] = np.percentile(gamma(queries, rows), PERCENTILES)
    weights = np.bincount(rows.ravel(), minlength=len(queries))
    for psi in reversed(PERCENTILES.tolist()):
        kept = keep(queries.top.scores, np.float32(candidates[psi]))
        total = weights @ queries.metric(metric, kept)
        if total / rows.size >= lower - 1e-12:  # of a mean of means, which rounds otherwise
            return Threshold(float(candidates[psi]), psi)
    return Threshold(float(candidates[0]), 0)
