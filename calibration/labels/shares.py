"""Estimate shares of queries, such as accuracy or the share lost at a threshold, from human judgements alone.

A share is one of the answerable queries: those for which people found a relevant document. Where some judged queries
have no answer, their number is itself an estimate, and the share is a ratio of two means:

    share = Σ w·y / Σ w·a

y is 1 for a query with the outcome, a is 1 for an answerable one, and w is the weight of the query: the inverse of the
probability that it was judged. With equal weights and no unanswerable query this is the plain mean of y.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from taugate.calibration.metrics.clusters import Labels

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedSample:
    """The n queries that people judged, each with the weight that makes them stand for all that users ask.

    outcomes: (n, c) float64, y, each 0 or 1: c outcomes of every query, such as its loss at c thresholds. A number
    between them, such as an NDCG, varies less than 0 and 1 would, and intervals are then too wide; scores: (n, c)
    float64, f, what the machine says of each outcome, on any scale; documents: (n,) int64 cluster of each query,
    equal for queries about the same document (`taugate.calibration.metrics.clusters`); weights: (n,) float64 above 0,
    proportional to the inverse of each query's probability of being judged, None where all are equal; answerable: (n,)
    bool, a, False for a query without an answer, which has no outcome; None where each query has an answer. Raises
    ValueError where shapes or values are others.
    """

    outcomes: Float64
    scores: Float64
    documents: Labels
    weights: Float64 | None = None
    answerable: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if self.outcomes.ndim != 2 or not self.outcomes.size:
            raise ValueError(
                f"outcomes are a table of queries and outcomes, not an array of shape {self.outcomes.shape}"
            )
        if not ((self.outcomes >= 0) & (self.outcomes <= 1)).all():
            raise ValueError("an outcome is not in 0…1")
        _check_scores(self.scores, self.documents, self.outcomes.shape)
        if self.weights is not None:
            if self.weights.shape != self.documents.shape:
                raise ValueError(f"there are weights of {len(self.weights)} queries, and {len(self.documents)} queries")
            if not (np.isfinite(self.weights) & (self.weights > 0)).all():
                raise ValueError("a weight is not a finite number above 0")
        if self.answerable is not None:
            if self.answerable.shape != self.documents.shape:
                raise ValueError(f"{len(self.answerable)} queries may be answerable, of {len(self.documents)}")
            if not self.answerable.any():
                raise ValueError("no judged query is answerable")
            if self.outcomes[~self.answerable].any():
                raise ValueError("a query without an answer has an outcome")

    @property
    def relative_weights(self) -> Float64:
        """Weights with the mean 1, (n,) float64."""
        if self.weights is None:
            return np.ones(len(self.documents))
        relative: Float64 = self.weights / self.weights.mean()
        return relative

    @property
    def worth(self) -> float:
        """The number of equally weighted queries that vary as little as these: (Σw)² / Σw² (Kish, 1965, §11.7)."""
        w = self.relative_weights
        return float(w.sum() ** 2 / (w @ w))

    @property
    def base(self) -> Float64:
        """The base of each share, (n,) float64: 1 for an answerable query, else 0."""
        return np.ones(len(self.documents)) if self.answerable is None else self.answerable.astype(np.float64)

    @property
    def having(self) -> Float64:
        """The number of queries with each outcome, whatever their weights, (c,) float64."""
        counts: Float64 = self.outcomes.sum(axis=0)
        return counts

    @property
    def lacking(self) -> Float64:
        """The number of answerable queries without each outcome, whatever their weights, (c,) float64."""
        counts: Float64 = self.base.sum() - self.having
        return counts

    @property
    def shares(self) -> Float64:
        """The weighted share of answerable queries with each outcome, (c,) float64: Hájek's ratio of two means."""
        w = self.relative_weights
        ratio: Float64 = (w @ self.outcomes) / (w @ self.base)
        return ratio


@dataclass(frozen=True)
class UnjudgedSample:
    """The N queries that people asked and nobody judged.

    scores: (N, c) float64, f, what the machine says of each outcome, on the same scale as of judged queries; documents:
    (N,) int64 cluster of each query, numbered with those of the judged queries. Where nobody knows which documents
    answer these queries, as in a log, give each query a number of its own. Raises ValueError where shapes are others.
    """

    scores: Float64
    documents: Labels

    def __post_init__(self) -> None:
        _check_scores(self.scores, self.documents, (len(self.documents), *self.scores.shape[1:]))


@dataclass(frozen=True)
class ShareEstimates:
    """Estimated shares of queries with their intervals, one for each of c outcomes.

    value: (c,) float64, in 0…1; lower, upper: (c,) float64 ends of the intervals; worth: (c,) float64, how many
    independent labels alone give an interval as short; weight: (c,) float64, λ, how far the machine is believed, 0
    where it has no say.
    """

    value: Float64
    lower: Float64
    upper: Float64
    worth: Float64
    weight: Float64

    @property
    def width(self) -> Float64:
        """Width of each interval, (c,)."""
        return self.upper - self.lower


def labels_alone(judged: JudgedSample, confidence: float) -> ShareEstimates:
    """Estimate shares from the labels and nothing else, by Clopper and Pearson's exact interval.

    The interval is that of as many independent labels as the judged queries are worth, after Korn and Graubard (Survey
    Methodology 24, 1998). Two things make them worth less than their number, and the smaller worth of two is taken:

    - Kish's (Survey Sampling, 1965, §8.2 and §11.7): (Σw)² / Σ(W²), W the weights about one document added up, over the
      answerable queries. Queries about one document count as if all of them had the same outcome. With equal weights
      and m queries about each document that is n² / Σm².
    - Korn and Graubard's: p(1 − p) / variance of p, the variance linearised (Cochran, Sampling Techniques, 1977, §6.3).
      It is the smaller one where queries with great weights are as likely as others to decide the share.

    The interval is exact where weights are equal and no two queries share a document.

    judged: what people judged; confidence: of each two-sided interval, in 0…1.
    """
    value = judged.shares
    weights = judged.relative_weights * judged.base
    counted = judged.base > 0
    effect = design_effect(judged.documents[counted], weights[counted])
    squares = np.square(weights) @ np.square(judged.outcomes - value)
    kish = weights.sum() ** 2 / (effect * np.square(weights).sum())
    spread = value * (1 - value) * weights.sum() ** 2
    worth = np.minimum(kish, np.divide(spread, effect * squares, out=np.full_like(value, kish), where=squares > 0))
    lower, upper = clopper_pearson(value, worth, confidence)
    return ShareEstimates(value, lower, upper, worth, np.zeros_like(value))


def clopper_pearson(share: Float64, labels: Float64, confidence: float) -> tuple[Float64, Float64]:
    """Return the ends of the exact interval of a binomial share, also for numbers of labels that are not whole.

    share: (c,) float64 observed shares, in 0…1; labels: (c,) float64, how many labels each is of; confidence: of the
    two-sided interval, in 0…1. Returns two (c,) float64.
    """
    found, tail = share * labels, (1 - confidence) / 2
    missed = labels - found
    lower = np.where(found > 0, special.betaincinv(np.maximum(found, 1e-12), missed + 1, tail), 0.0)
    upper = np.where(missed > 0, special.betaincinv(found + 1, np.maximum(missed, 1e-12), 1 - tail), 1.0)
    return lower, upper


def design_effect(documents: Labels, weights: Float64 | None = None) -> float:
    """Return by how much sharing documents widens a variance at most: ΣW² / Σw², W the weights about one document.

    With equal weights and m of the n queries about each document, it is Σm² / n.

    documents: (n,) cluster of each query; weights: (n,) of the queries, None where all are equal.
    """
    own = np.ones(len(documents)) if weights is None else weights
    totals = np.bincount(np.unique(documents, return_inverse=True)[1], weights=own)
    return float(totals @ totals / (own @ own))


def _check_scores(scores: Float64, documents: Labels, shape: tuple[int, ...]) -> None:
    if scores.ndim != 2 or scores.shape != shape:
        raise ValueError(f"scores have the shape {scores.shape}, and {shape} is expected")
    if documents.shape != shape[:1]:
        raise ValueError(f"there are documents of {len(documents)} queries, and scores of {len(scores)}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not a finite number")
