"""The numbers of the manifest for one part of the queries: accuracy, NDCG, COE, ROE, results kept, replies empty."""

import numpy as np

from calibration.metrics.abstention import abstention
from calibration.metrics.bootstrap import Draw, bootstrapped
from calibration.scored import Scored
from retrieval.overlap import overlap_thresholds, share_above
from retrieval.policy import PolicyKind, keep
from retrieval.release.interval import Interval
from retrieval.release.manifest import Metrics
from retrieval.similarity import Float32


def measure(
    queries: Scored,
    random_scores: Float32,
    draw: Draw,
    kind: PolicyKind,
    threshold: np.float32 | None,
    overlap_percentile: float,
) -> Metrics:
    """Metrics of the answerable `queries` under `draw`, without and with the cut.

    random_scores: (q,) float32, S_rand; threshold: in units of the policy's decision scores, None to keep everything.
    """
    judged = queries.judged
    thetas = overlap_thresholds(judged.top.scores, draw.rows, overlap_percentile)
    decisions = queries.decisions(kind)
    kept = keep(decisions, threshold)
    return Metrics(
        accuracy=bootstrapped(judged.accuracy(), draw.rows),
        ndcg=bootstrapped(judged.ndcg(), draw.rows),
        accuracy_at_tau=bootstrapped(judged.accuracy(kept), draw.rows),
        ndcg_at_tau=bootstrapped(judged.ndcg(kept), draw.rows),
        coe=Interval.of_bootstraps(share_above(judged.correct, thetas)),
        roe=Interval.of_bootstraps(share_above(random_scores, thetas)),
        kept_fraction=float(kept.mean()),
        abstention=abstention(decisions, judged.accuracy(), queries.unanswerable_decisions(kind), threshold),
    )
