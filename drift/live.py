"""COE and ROE of live traffic, by the code that measured them at calibration (thresholds paper §2.3, eq. 1 and 2)."""

from dataclasses import dataclass

import numpy as np

from taugate.drift.effect import Float64
from taugate.drift.observations import Judgements, Observations
from taugate.retrieval.release.interval import Interval
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
