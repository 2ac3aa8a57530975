"""The numbers of the manifest for one part of the queries: accuracy, NDCG, COE, ROE, results kept, replies empty."""

import numpy as np

from calibration.metrics.bootstrap import Draw, bootstrapped, interval
from calibration.metrics.judged import JudgedQueries
from retrieval.index import TopK
from retrieval.overlap import overlap_thresholds, share_above
from retrieval.policy import keep
from retrieval.release.manifest import Abstention, Metrics
from retrieval.similarity import Float32


def measure(
    queries: JudgedQueries,
    random_scores: Float32,
    unanswerable: TopK,
    draw: Draw,
    threshold: np.float32,
    overlap_percentile: float,
) -> Metrics:
    """Metrics of answerable `queries` under `draw`, without and with the threshold.

    random_scores: (q,) float32, S_rand; unanswerable: top-K of the queries that no document answers.
    """
    thetas = overlap_thresholds(queries.top.scores, draw.rows, overlap_percentile)
    kept = keep(queries.top.scores, threshold)
    return Metrics(
        accuracy=bootstrapped(queries.accuracy(), draw.rows),
        ndcg=bootstrapped(queries.ndcg(), draw.rows),
        accuracy_at_tau=bootstrapped(queries.accuracy(threshold), draw.rows),
        ndcg_at_tau=bootstrapped(queries.ndcg(threshold), draw.rows),
        coe=interval(share_above(queries.correct, thetas)),
        roe=interval(share_above(random_scores, thetas)),
        kept_fraction=float(kept.mean()),
        abstention=Abstention(
            answerable_empty=_empty_share(queries.top, threshold),
            unanswerable_empty=_empty_share(unanswerable, threshold) if len(unanswerable) else None,
        ),
    )


def _empty_share(top: TopK, threshold: np.float32) -> float:
    return float((~keep(top.scores, threshold).any(axis=1)).mean())
