"""COE and ROE: how far top-K similarities overlap with those of correct and of random documents, calibrated and live.

Thresholds paper §2.3, eq. 1 and 2. The papers leave open which percentile of S_topK gives θ. On their own telecom
questions the 5th gives the published means of MiniLM, COE within 0.4 points and ROE within 0.2, which the minimum does
not, hence the default. Their intervals are wider than this percentile gives (docs/papers.md).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.drift.observations import Float64, Judgements, Observations
from taugate.drift.rules import MIN_IN_WINDOW
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.outcome_records import BootstrapRecord
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.vectors.similarity import Float32


def overlap_thresholds(top_scores: Float32, rows: NDArray[np.int64], percentile: float) -> NDArray[np.float64]:
    """Return θ_j of each bootstrap j, (m,) float64: a percentile of the top-K similarities of its queries.

    Args:
        top_scores: (q, K) float32.
        rows: (m, l) int64 positions of queries.
        percentile: Percentile that is θ_j, 0…100.
    """
    pooled = top_scores[rows].reshape(len(rows), -1)
    return np.percentile(pooled, percentile, axis=1).astype(np.float64)


def share_above(sample: Float32, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of a sample strictly above each threshold, (m,) float64 in 0…1: 1 − ECDF.

    With S_corr this is COE at each θ_j, with S_rand it is ROE.

    Args:
        sample: (s,) float32, s ≥ 1.
        thresholds: (m,) float64.
    """
    below_or_equal = np.searchsorted(np.sort(sample).astype(np.float64), thresholds, side="right")
    return 1.0 - below_or_equal / len(sample)


@dataclass(frozen=True)
class LiveOverlap:
    """COE and ROE of live traffic; each None if there are too few queries or judgements.

    Attributes:
        coe: COE of documents that were judged relevant.
        expected_coe: COE of the calibration's correct documents against the live θ, an estimate without judgements.
        roe: ROE of random documents; also None if the service cannot score any.
    """

    coe: Interval | None
    expected_coe: Interval | None
    roe: Interval | None


def live_overlap(
    queries: Observations, judged: Judgements, reference: Reference, drawn: BootstrapRecord
) -> LiveOverlap:
    """Measure COE and ROE of the queries and judgements of a window of traffic.

    They are bootstrapped as the release was: m rows of l queries, the seed, and the percentile that is θ.
    """
    if len(queries) < MIN_IN_WINDOW:
        return LiveOverlap(None, None, None)
    rows = np.random.default_rng(drawn.seed).integers(0, len(queries), size=(drawn.bootstraps, drawn.sample_size))
    thetas = overlap_thresholds(queries.top, rows, drawn.overlap_percentile)
    return LiveOverlap(
        coe=None if len(judged) < MIN_IN_WINDOW else Interval.of_bootstraps(_coe(judged, reference, thetas)),
        expected_coe=Interval.of_bootstraps(share_above(reference.correct, thetas)),
        roe=Interval.of_bootstraps(share_above(queries.random.ravel(), thetas)) if queries.random.size else None,
    )


def _coe(judged: Judgements, reference: Reference, thetas: Float64) -> Float64:
    """Return COE at each θ, (m,) float64.

    Users can judge only documents that are shown. Those score higher, so that judgements alone would give too high a
    COE. Explored results stand for what is not shown, by their weights. Without any, its share and its similarities are
    taken from the calibration.
    """
    if (judged.weight > 1).any():
        above = np.array([judged.weight[judged.correct > theta].sum() for theta in thetas], dtype=np.float64)
        return above / float(judged.weight.sum())
    shown = float(reference.correct_kept.mean())
    coe = shown * share_above(judged.correct, thetas)
    if shown < 1:
        coe = coe + (1 - shown) * share_above(reference.correct[~reference.correct_kept], thetas)
    return coe
