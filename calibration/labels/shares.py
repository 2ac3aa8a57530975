"""Shares of queries, such as accuracy or the share lost at a threshold, estimated from human judgements alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from taugate.calibration.metrics.clusters import Labels

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedSample:
    """The n queries that people judged: a random sample of what users ask.

    outcomes: (n, c) float64, y, each 0 or 1: c outcomes of every query, such as its loss at c thresholds; scores:
    (n, c) float64, f, what the machine says of each outcome, on any scale; documents: (n,) int64 cluster of each query,
    equal for queries about the same document (`taugate.calibration.metrics.clusters`). Raises ValueError where shapes
    or values are others.
    """

    outcomes: Float64
    scores: Float64
    documents: Labels

    def __post_init__(self) -> None:
        if self.outcomes.ndim != 2 or not self.outcomes.size:
            raise ValueError(
                f"outcomes are a table of queries and outcomes, not an array of shape {self.outcomes.shape}"
            )
        if not np.isin(self.outcomes, (0, 1)).all():
            raise ValueError("outcomes are 0 or 1")
        _check_scores(self.scores, self.documents, self.outcomes.shape)


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

    Queries about one document count as if all of them had the same outcome: n labels, m of them about each document,
    are worth n² / Σm² (Kish, Survey Sampling, 1965). The interval is exact where no two queries share a document.

    judged: what people judged; confidence: of each two-sided interval, in 0…1.
    """
    value = judged.outcomes.mean(axis=0)
    worth = np.full_like(value, len(judged.outcomes) / design_effect(judged.documents))
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


def design_effect(documents: Labels) -> float:
    """Return by how much sharing documents widens a variance at most: Σm² / n for documents with m of the n queries.

    documents: (n,) cluster of each query.
    """
    sizes = np.unique(documents, return_counts=True)[1]
    return float(sizes @ sizes) / len(documents)


def _check_scores(scores: Float64, documents: Labels, shape: tuple[int, ...]) -> None:
    if scores.ndim != 2 or scores.shape != shape:
        raise ValueError(f"scores have the shape {scores.shape}, and {shape} is expected")
    if documents.shape != shape[:1]:
        raise ValueError(f"there are documents of {len(documents)} queries, and scores of {len(scores)}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not a finite number")
