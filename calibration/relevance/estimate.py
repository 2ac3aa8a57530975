"""From the queries of the first part to a model, and from the model to the relevance of every result."""

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from calibration.metrics.judged import JudgedQueries
from calibration.relevance.fit import Fit, fit
from calibration.relevance.parts import Parts
from retrieval.index import FlatIndex, TopK
from retrieval.relevance.background import Background
from retrieval.relevance.features import features
from retrieval.relevance.model import Relevance
from retrieval.similarity import Float32


@dataclass(frozen=True)
class Estimated:
    """A fitted model with the probabilities it gives: answerable (n, K) and unanswerable (u, K) float32."""

    relevance: Relevance
    fit: Fit
    answerable: Float32
    unanswerable: Float32


def estimate(
    judged: JudgedQueries,
    vectors: Float32,
    unanswerable: tuple[TopK, Float32],
    parts: Parts,
    index: FlatIndex,
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Estimated | None:
    """Fit on the queries at `parts.fit`, of the n answerable ones, and score every result.

    vectors: (n, d); unanswerable: their top-K and (u, d) vectors; lengths: (N,) bytes of each document. None where the
    queries to fit on have no relevant result, or nothing else. One thread: the same data give the same bits.
    """
    with threadpool_limits(limits=1):
        background = Background.of(index.vectors, vectors[parts.fit], lengths)
        k = judged.top.scores.shape[1]
        rows = judged.take(parts.fit)
        documents = background.documents[rows.top.positions]
        values = features(rows.top.scores, background.of_queries(vectors[parts.fit]), documents, k)
        fitted = fit(values, rows.grades >= 1)
        if fitted is None:
            return None
        relevance = Relevance(fitted.model, background, k)
        answerable = relevance.estimate(vectors, judged.top)
        return Estimated(relevance, fitted, answerable, relevance.estimate(unanswerable[1], unanswerable[0]))
