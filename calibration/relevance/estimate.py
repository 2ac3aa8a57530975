"""From the queries of the first part to a model, and from the model to the relevance of every result."""

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from taugate.calibration.metrics.judged import JudgedQueries
from taugate.calibration.metrics.parts import Parts
from taugate.calibration.relevance.fit import Fit, fit
from taugate.calibration.relevance.recalibration import recalibrated
from taugate.retrieval.index.topk import TopK
from taugate.retrieval.policy.background import Background
from taugate.retrieval.policy.features import features
from taugate.retrieval.policy.model import Relevance
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class Estimated:
    """A fitted model with the probabilities it gives: answerable (n, K) and unanswerable (u, K) float32.

    fit: before its probabilities were recalibrated, and what it then gave to the queries that help to choose, (c, K),
    for a choice in which those that certify have no say.
    """

    relevance: Relevance
    fit: Fit
    choosing: Float32
    answerable: Float32
    unanswerable: Float32


def estimate(
    judged: JudgedQueries,
    vectors: Float32,
    unanswerable: tuple[TopK, Float32],
    parts: Parts,
    documents: Float32,
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Estimated | None:
    """Fit on the queries at `parts.fit`, of the n answerable ones, recalibrate on the others, score every result.

    vectors: (n, d); unanswerable: their top-K and (u, d) vectors; documents: (N, d); lengths: (N,) bytes of each. None
    where the queries to fit on have no relevant result, or nothing else. One thread: the same data give the same bits.
    """
    with threadpool_limits(limits=1):
        background = Background.of(documents, vectors[parts.fit], lengths)
        k = judged.top.scores.shape[1]
        found = background.documents[judged.top.positions]
        values, relevant = features(judged.top.scores, background.of_queries(vectors), found, k), judged.grades >= 1
        fitted = fit(values[parts.fit], relevant[parts.fit], parts.labels)
        if fitted is None:
            return None
        model = recalibrated(fitted.model, values[parts.rest], relevant[parts.rest])
        relevance = Relevance(model, background, k)
        return Estimated(
            relevance,
            fitted,
            fitted.model.probability(values[parts.choose]).astype(np.float32),
            model.probability(values).astype(np.float32),
            relevance.estimate(unanswerable[1], unanswerable[0]),
        )
