"""COE and ROE of live traffic, by the code that measured them at calibration (thresholds paper §2.3, eq. 1 and 2)."""

from dataclasses import dataclass

import numpy as np

from taugate.drift.observations import Float64, Judgements, Observations
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.manifest import BootstrapRecord
from taugate.retrieval.release.reference import Reference
from taugate.retrieval.vectors.overlap import overlap_thresholds, share_above
from taugate.retrieval.vectors.similarity import Float32

# As many queries as a bootstrap draws by default (the paper's l): of fewer, an interval says little.
FEWEST = 100


@dataclass(frozen=True)
class LiveOverlap:
    """Each None where too little was seen.

    coe: of documents that were judged relevant; expected_coe: of those of the calibration, against the live θ: what is
    known of COE where nobody judges; roe: of random documents.
    """

    coe: Interval | None
    expected_coe: Interval | None
    roe: Interval | None


def live_overlap(
    queries: Observations, judged: Judgements, reference: Reference, drawn: BootstrapRecord
) -> LiveOverlap:
    """Of a window; drawn: how the release was bootstrapped, m rows of l queries, and which percentile θ is."""
    if len(queries) < FEWEST:
        return LiveOverlap(None, None, None)
    rows = np.random.default_rng(drawn.seed).integers(0, len(queries), size=(drawn.bootstraps, drawn.sample_size))
    thetas = overlap_thresholds(queries.top, rows, drawn.overlap_percentile)
    return LiveOverlap(
        coe=None if len(judged) < FEWEST else Interval.of_bootstraps(_coe(judged.correct, reference, thetas)),
        expected_coe=Interval.of_bootstraps(share_above(reference.correct, thetas)),
        roe=Interval.of_bootstraps(share_above(queries.random.ravel(), thetas)),
    )


def _coe(correct: Float32, reference: Reference, thetas: Float64) -> Float64:
    """COE at each θ, (m,).

    Nobody can judge a correct document that is not shown, and those score lower, so that what is judged alone would
    give too high a COE. The share that is not shown, and its similarities, are taken from the calibration.
    """
    shown = float(reference.correct_kept.mean())
    coe = shown * share_above(correct, thetas)
    if shown < 1:
        coe = coe + (1 - shown) * share_above(reference.correct[~reference.correct_kept], thetas)
    return coe


_BINS = 10  # of equal share in the reference, as credit scoring has it, where PSI comes from
_LEAST = 1e-4  # share of a bin that nothing is in: its logarithm would be infinite


def kolmogorov_smirnov(live: Float32, reference: Float32) -> float:
    """Largest distance between the two ECDFs, 0…1; both (n,), n ≥ 1, of different n."""
    everywhere = np.sort(np.concatenate([live, reference]))  # in order, looking them up takes a tenth of the time
    return float(np.abs(_ecdf(live, everywhere) - _ecdf(reference, everywhere)).max())


def wasserstein(live: Float32, reference: Float32) -> float:
    """Area between the two ECDFs, in units of similarity: how far the mass has moved (1-Wasserstein)."""
    everywhere = np.sort(np.concatenate([live, reference]))
    apart = np.abs(_ecdf(live, everywhere) - _ecdf(reference, everywhere))
    return float((apart[:-1] * np.diff(everywhere.astype(np.float64))).sum())


def population_stability(live: Float32, reference: Float32) -> float:
    """PSI, Σ (p − q) · ln(p / q) over ten bins of equal share in the reference; by habit .1 is moderate, .25 large."""
    edges = np.percentile(reference, np.linspace(0, 100, _BINS + 1)[1:-1]).astype(np.float32)
    p, q = (_shares(sample, edges) for sample in (live, reference))
    return float(((p - q) * np.log(p / q)).sum())


def _ecdf(sample: Float32, at: Float32) -> Float64:
    share: Float64 = np.searchsorted(np.sort(sample), at, side="right") / len(sample)
    return share


def _shares(sample: Float32, edges: Float32) -> Float64:
    counts = np.bincount(np.searchsorted(edges, sample, side="right"), minlength=_BINS)
    share: Float64 = np.maximum(counts / len(sample), _LEAST)
    return share
