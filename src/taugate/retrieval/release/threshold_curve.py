"""What other thresholds would have kept and lost of the calibration queries, from the similarities a release keeps."""

from typing import NamedTuple

import numpy as np

from taugate.retrieval.policy.policy import PolicyKind, relative
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.vectors.similarity import Float32

PERCENTILES = range(101)


class CurvePoint(NamedTuple):
    """A threshold, and what a cut at it does to the calibration queries.

    Attributes:
        tau: Threshold, in units of the policy's decision score, a float32.
        kept: Share of the results of all queries that reach it.
        loss: Share of the queries that have a relevant document in their top-K, and none in what is kept of it.
    """

    tau: float
    kept: float
    loss: float


def quantiles(similarities: Float32) -> list[float]:
    """Return the percentiles 0, 1, …, 100 of similarities, of any shape, by linear interpolation."""
    return [float(each) for each in np.percentile(similarities, PERCENTILES)]


def threshold_curve(reference: Reference, kind: PolicyKind, tau: float | None) -> list[CurvePoint]:
    """Return the curve of thresholds of a policy, by rising threshold, in 203 points at most.

    Its points are the percentiles of the decision scores of the top-K, those of the correct documents that were found,
    τ itself, and one above all scores: kept falls from 1 to 0, and loss rises from 0 to the accuracy without a
    threshold.

    Args:
        reference: q queries with their top-K.
        kind: Of the policy.
        tau: Of the policy, None for none. The curve of a policy `probability` is empty where the release does not keep
            the relevance of its calibration queries.
    """
    if kind == "probability" and reference.relevance is None:
        return []
    top, found = _decision_scores(reference, kind)
    taus = [np.percentile(each, PERCENTILES) for each in (top, found) if each.size]
    taus.append(np.array([np.nextafter(top.max(), np.float32(np.inf))]))
    if tau is not None:
        taus.append(np.array([tau]))
    thresholds = np.unique(np.concatenate(taus).astype(np.float32))
    thresholds = thresholds[np.isfinite(thresholds)]  # a share of the best may be −∞, which JSON cannot write
    below = np.searchsorted(np.sort(top, axis=None), thresholds)  # what is equal to a threshold is kept
    lost = np.searchsorted(np.sort(found), thresholds)
    columns = thresholds, 1 - below / top.size, lost / len(top)
    return [CurvePoint(*point) for point in zip(*(each.tolist() for each in columns), strict=True)]


def _decision_scores(reference: Reference, kind: PolicyKind) -> tuple[Float32, Float32]:
    """Return the decision scores of the top-K, (q, K), and of the f queries that find an answer, that which keeps it.

    That is the highest of a relevant document in the top-K. A cut by similarity, or by its share of the best, keeps the
    first results, so there it is that of the most similar one.
    """
    if reference.relevance is not None and reference.correct_relevance is not None and kind == "probability":
        return reference.relevance, reference.correct_relevance[reference.correct_relevance > 0]
    top, correct = reference.top, reference.correct
    # Both are the one similarity of the pair, so that a document that was found is there to the last bit.
    hits = (top == correct[:, None]).any(axis=1)
    if kind == "relative":
        correct = relative(np.column_stack([top[:, 0], correct]))[:, 1]
        top = relative(top)
    return top, correct[hits]
