"""Distances between live similarities and those of the calibration: KS, Wasserstein and PSI."""

import numpy as np

from taugate.drift.observations import Float64
from taugate.retrieval.vectors.similarity import Float32

_BINS = 10  # of equal share in the reference, as in credit scoring, which PSI comes from
_MIN_SHARE = 1e-4  # share of an empty bin, whose logarithm would be infinite


def kolmogorov_smirnov(live: Float32, reference: Float32) -> float:
    """Return the largest distance between the two empirical distribution functions, in 0…1.

    `live` is (n,) and `reference` (m,) float32, n, m ≥ 1.
    """
    points = np.sort(np.concatenate([live, reference]))  # sorted, looking them up takes a tenth of the time
    return float(np.abs(_ecdf(live, points) - _ecdf(reference, points)).max())


def wasserstein(live: Float32, reference: Float32) -> float:
    """Return the 1-Wasserstein distance, in units of similarity: the area between the two distribution functions.

    `live` is (n,) and `reference` (m,) float32, n, m ≥ 1.
    """
    points = np.sort(np.concatenate([live, reference]))
    gaps = np.abs(_ecdf(live, points) - _ecdf(reference, points))
    return float((gaps[:-1] * np.diff(points.astype(np.float64))).sum())


def population_stability(live: Float32, reference: Float32) -> float:
    """Return the population stability index Σ (p − q) · ln(p / q) over ten bins of equal share in the reference.

    By convention, 0.1 is a moderate shift and 0.25 a large one. `live` is (n,) and `reference` (m,) float32, n, m ≥ 1.
    """
    edges = np.percentile(reference, np.linspace(0, 100, _BINS + 1)[1:-1]).astype(np.float32)
    p, q = (_shares(sample, edges) for sample in (live, reference))
    return float(((p - q) * np.log(p / q)).sum())


def _ecdf(sample: Float32, at: Float32) -> Float64:
    share: Float64 = np.searchsorted(np.sort(sample), at, side="right") / len(sample)
    return share


def _shares(sample: Float32, edges: Float32) -> Float64:
    counts = np.bincount(np.searchsorted(edges, sample, side="right"), minlength=_BINS)
    share: Float64 = np.maximum(counts / len(sample), _MIN_SHARE)
    return share
