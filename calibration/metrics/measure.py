"""The numbers of the manifest for one part of the queries: accuracy, NDCG, COE, ROE, results kept, replies empty."""

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.abstention import abstention
from taugate.calibration.metrics.bootstrap import Draw
from taugate.calibration.metrics.scored import Scored
from taugate.retrieval.policy.policy import PolicyKind
from taugate.retrieval.release.interval import Estimate, Interval
from taugate.retrieval.release.manifest import Metrics
from taugate.retrieval.vectors.overlap import overlap_thresholds, share_above
from taugate.retrieval.vectors.similarity import Float32


def measure(
    queries: Scored,
    random_scores: Float32,
    draw: Draw,
    kind: PolicyKind,
    threshold: np.float32 | None,
    overlap_percentile: float,
) -> Metrics:
    """Metrics of the answerable `queries` under `draw`, of all their results and of those that users get.

    random_scores: (q,) float32, S_rand; threshold: in units of the policy's decision scores, None to keep everything.
    """
    judged = queries.judged
    thetas = overlap_thresholds(judged.top.scores, draw.rows, overlap_percentile)
    kept = queries.kept(kind, threshold)
    deciding, unanswerable, least = queries.deciding(kind, threshold)
    return Metrics(
        accuracy=draw.estimate(judged.accuracy()),
        ndcg=draw.estimate(judged.ndcg()),
        accuracy_at_tau=draw.estimate(judged.accuracy(kept)),
        ndcg_at_tau=draw.estimate(judged.ndcg(kept)),
        coe=_overlap(judged.correct, thetas, draw),
        roe=_overlap(random_scores, thetas, draw),
        kept_fraction=float(kept.mean()),
        abstention=abstention(deciding, judged.accuracy(), unanswerable, least),
    )


def _overlap(scores: Float32, thetas: NDArray[np.float64], draw: Draw) -> Estimate:
    """Share of scores, one a query, above θ_j; by document of the share of the θ_j that each score is above."""
    found = Interval.of_bootstraps(share_above(scores, thetas))
    above = np.searchsorted(np.sort(thetas), scores, side="left") / len(thetas)
    return Estimate(**found.model_dump(), by_document=draw.by_document(above))
