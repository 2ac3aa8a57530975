"""Estimates shares of queries, such as accuracy or the share lost at a threshold, from human judgements alone.

A share is one of the answerable queries, for which people found a relevant document. If some judged queries have no
answer, the number of answerable ones is itself an estimate, and the share is a ratio of two means:

    share = Σ w·y / Σ w·a

y is 1 for a query with the outcome, a is 1 for an answerable one, and w is the weight of the query: the inverse of the
probability that it was judged. With equal weights and no unanswerable query this is the plain mean of y.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from taugate.evidence.clusters import ClusterIds
from taugate.policy.arrays import Float64


@dataclass(frozen=True)
class JudgedSample:
    """The n judged queries, weighted so that they represent all queries that users ask.

    Raises ValueError if a shape or value is not as described.
    """

    # (n, c) float64, y, 0 or 1: c outcomes of every query, such as its loss at c thresholds. Numbers between 0 and 1,
    # such as an NDCG, vary less, and intervals are then too wide.
    outcomes: Float64
    scores: Float64  # (n, c) f, the machine's score of each outcome, on any scale
    # (n,) int64 cluster of each query, equal for queries about the same document (`taugate.evidence.clusters`).
    documents: ClusterIds
    # (n,) float64 above 0, proportional to the inverse of each query's probability of being judged, None if all are
    # equal.
    weights: Float64 | None = None
    # (n,) bool, a, False for a query without an answer, which has no outcome; None if each query has an answer.
    answerable: NDArray[np.bool_] | None = None
    # (n,) float64, which replace a in the share if the number of answerable queries is itself estimated
    # (`taugate.evidence.few_labels.population`), None if a is known.
    bases: Float64 | None = None

    def __post_init__(self) -> None:
        if self.outcomes.ndim != 2 or not self.outcomes.size:
            raise ValueError(f"outcomes must have the shape (queries, outcomes), not {self.outcomes.shape}")
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
        if self.bases is not None:
            if self.bases.shape != self.documents.shape:
                raise ValueError(f"there are bases of {len(self.bases)} queries, and {len(self.documents)} queries")
            if not self.relative_weights @ self.bases > 0:
                raise ValueError("the bases do not add up to more than 0")

    @property
    def relative_weights(self) -> Float64:
        """Weights with the mean 1, (n,) float64."""
        if self.weights is None:
            return np.ones(len(self.documents))
        relative: Float64 = self.weights / self.weights.mean()
        return relative

    @property
    def effective_labels(self) -> float:
        """Number of equally weighted queries with the same variance: (Σw)² / Σw² (Kish, 1965, §11.7)."""
        w = self.relative_weights
        return float(w.sum() ** 2 / (w @ w))

    @property
    def base(self) -> Float64:
        """Base of each share, (n,) float64: 1 for an answerable query and else 0, or `bases`."""
        if self.bases is not None:
            return self.bases
        return np.ones(len(self.documents)) if self.answerable is None else self.answerable.astype(np.float64)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Mask of the queries that shares refer to, (n,): the answerable ones."""
        counted: NDArray[np.bool_] = self.base != 0
        return counted

    @property
    def having(self) -> Float64:
        """Unweighted number of queries with each outcome, (c,) float64."""
        counts: Float64 = self.outcomes.sum(axis=0)
        return counts

    @property
    def lacking(self) -> Float64:
        """Unweighted number of answerable queries without each outcome, (c,) float64."""
        counts: Float64 = self.counted.sum() - self.having
        return counts

    @property
    def shares(self) -> Float64:
        """Weighted share of answerable queries with each outcome, (c,) float64: Hájek's ratio of two means."""
        w = self.relative_weights
        ratio: Float64 = (w @ self.outcomes) / (w @ self.base)
        return ratio


@dataclass(frozen=True)
class UnjudgedSample:
    """The N unjudged queries of users; raises ValueError if a shape is not as described."""

    scores: Float64  # (N, c) f, the machine's score of each outcome, on the same scale as for judged queries
    # (N,) int64 cluster of each query, numbered with those of the judged queries. If the documents that answer these
    # queries are unknown, as in a log, give every query its own number.
    documents: ClusterIds

    def __post_init__(self) -> None:
        _check_scores(self.scores, self.documents, (len(self.documents), *self.scores.shape[1:]))


@dataclass(frozen=True)
class ShareEstimates:
    """Estimated shares of queries with their intervals, one for each of c outcomes."""

    value: Float64  # (c,) in 0…1
    lower: Float64  # (c,) ends of the intervals
    upper: Float64  # (c,) ends of the intervals
    effective_labels: Float64  # (c,) number of independent labels alone that give an interval as short
    weight: Float64  # (c,) λ, the weight of the machine, 0 if it is not used

    @property
    def width(self) -> Float64:
        """Width of each interval, (c,)."""
        return self.upper - self.lower


def labels_alone(judged: JudgedSample, confidence: float) -> ShareEstimates:
    """Estimate shares from the labels alone, by Clopper and Pearson's exact interval.

    The interval is that of the effective number of independent labels, after Korn and Graubard (Survey Methodology 24,
    1998). The effective number is the smaller of two:

    - Kish's (Survey Sampling, 1965, §8.2 and §11.7): (Σw)² / Σ(W²), W the sum of the weights about one document, over
      the answerable queries. Queries about one document count as if all had the same outcome. With equal weights and m
      queries about each document that is n² / Σm².
    - Korn and Graubard's: p(1 − p) / variance of p, the variance linearised (Cochran, Sampling Techniques, 1977, §6.3).
      It is the smaller one if queries with large weights are as likely as others to decide the share.

    The interval is exact if weights are equal and no two queries share a document. If bases are estimated, a large
    share of the queries with the outcome may have had a small probability of being seen, and too few of them to show
    their variance. So their number gives the degrees of freedom, and the interval includes Fay and Feuer's
    (`weighted_rate_limits`). The confidence is that of each two-sided interval.
    """
    value = judged.shares
    w = judged.relative_weights
    weights = w * judged.counted
    effect = design_effect(judged.documents[judged.counted], w[judged.counted])
    squares = np.square(w) @ np.square(judged.outcomes - value * judged.base[:, None])
    kish = weights.sum() ** 2 / (effect * np.square(weights).sum())
    binomial = value * (1 - value) * (w @ judged.base) ** 2
    effective = np.minimum(
        kish, np.divide(binomial, effect * squares, out=np.full_like(value, kish), where=squares > 0)
    )
    if judged.bases is not None:
        effective *= _of_few_outcomes(judged, w, confidence)
    lower, upper = clopper_pearson(value, effective, confidence)
    if judged.bases is not None:
        rare_lower, rare_upper = weighted_rate_limits(judged.outcomes, w / (w @ judged.base), confidence)
        lower, upper = np.minimum(lower, rare_lower), np.maximum(upper, np.minimum(rare_upper, 1.0))
    return ShareEstimates(value, lower, upper, effective, np.zeros_like(value))


def _of_few_outcomes(judged: JudgedSample, weights: Float64, confidence: float) -> Float64:
    """Return the factor by which few queries with the outcome make the variance less certain, (c,) in 0…1."""
    # Korn and Graubard's factor: the squared ratio of the quantiles of Student's t with n − 1 degrees of freedom, and
    # with one less than the effective number of queries with the outcome.
    tail, n = (1 + confidence) / 2, len(judged.documents)
    total, squares = weights @ judged.outcomes, np.square(weights) @ judged.outcomes
    effective = np.divide(np.square(total), squares, out=np.full_like(total, n), where=squares > 0)
    ratio: Float64 = special.stdtrit(max(n - 1, 1), tail) / special.stdtrit(np.maximum(effective - 1, 1.0), tail)
    return np.square(ratio)


def weighted_rate_limits(outcomes: Float64, weights: Float64, confidence: float) -> tuple[Float64, Float64]:
    """Return the ends of Fay and Feuer's interval of a weighted sum of rare outcomes (Statistics in Medicine 16, 1997).

    The upper end allows for one additional query of the largest weight, as the gamma distribution of Poisson counts
    does. Both ends are (c,) float64. `outcomes` are (n, c) float64 in 0…1, `weights` (n,) float64, whose sum over the
    queries with an outcome is the share.
    """
    tail, largest = (1 - confidence) / 2, weights.max()
    share, variance = weights @ outcomes, np.square(weights) @ outcomes
    larger, wider = share + largest, variance + largest**2
    seen = np.where(share > 0, share, 1.0), np.where(share > 0, variance, 1.0)
    lower = np.where(share > 0, special.gammaincinv(seen[0] ** 2 / seen[1], tail) * seen[1] / seen[0], 0.0)
    return lower, special.gammaincinv(larger**2 / wider, 1 - tail) * wider / larger


def clopper_pearson(share: Float64, labels: Float64, confidence: float) -> tuple[Float64, Float64]:
    """Return the ends of the exact interval of a binomial share, (c,) float64 each, also for fractions of labels.

    `share` and `labels`, the number of labels of each share, are (c,) float64; the confidence is two-sided.
    """
    hits, tail = share * labels, (1 - confidence) / 2
    misses = labels - hits
    lower = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1e-12), misses + 1, tail), 0.0)
    upper = np.where(misses > 0, special.betaincinv(hits + 1, np.maximum(misses, 1e-12), 1 - tail), 1.0)
    return lower, upper


def design_effect(documents: ClusterIds, weights: Float64 | None = None) -> float:
    """Return the upper limit of the design effect of shared documents: ΣW² / Σw², W the weights about a document.

    With equal weights and m of the n queries about each document, it is Σm² / n. `documents` is (n,) cluster of each
    query; `weights` is (n,) weights of the queries, None if all are equal.
    """
    w = np.ones(len(documents)) if weights is None else weights
    totals = np.bincount(np.unique(documents, return_inverse=True)[1], weights=w)
    return float(totals @ totals / (w @ w))


def _check_scores(scores: Float64, documents: ClusterIds, shape: tuple[int, ...]) -> None:
    if scores.ndim != 2 or scores.shape != shape:
        raise ValueError(f"scores have the shape {scores.shape}, but {shape} is expected")
    if documents.shape != shape[:1]:
        raise ValueError(f"there are documents of {len(documents)} queries, and scores of {len(scores)}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not a finite number")
