"""How much worse a mean over queries may have become: a one-sided upper confidence limit.

Paired where both releases were asked the same queries: the limit of the gate, of the mean loss by query
(`calibration/metrics/mean_loss.py`). Otherwise of two samples: the limits of both means put together by the method of
variance estimates recovery (Zou and Donner, "Construction of confidence limits about effect measures", Statist. Med.
27, 2008), which with Wilson's limits is Newcombe's tenth method for two proportions (Statist. Med. 17, 1998). Here the
limits of each mean are the gate's as well, so that shares, NDCG and clusters of queries are all one case.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calibration.metrics.mean_loss import Labels, Losses, PerQuery
from calibration.promotion.quantity import Sample

Test = Literal["paired", "two samples"]


@dataclass(frozen=True)
class Difference:
    """How much worse: the mean found, −1 … 1 and below 0 where it is better, and the most it is with a confidence."""

    mean: float
    most: float
    test: Test


def loss(old: Sample, new: Sample, confidence: float) -> Difference:
    """By how much the mean of `new` is below that of `old`; each has a query at least."""
    if np.array_equal(old.query, new.query):
        mean, most = _limit(old.values - new.values, new.labels, confidence)
        return Difference(mean, most, "paired")
    (before, highest), (missed, most) = (
        _limit(values, labels, confidence)
        for values, labels in ((old.values, old.labels), (1 - new.values, new.labels))
    )
    mean = before - (1 - missed)
    return Difference(mean, min(1.0, mean + math.hypot(highest - before, most - missed)), "two samples")


def _limit(losses: PerQuery, labels: Labels, confidence: float) -> tuple[float, float]:
    """Mean of losses, −1 … 1, and its upper limit."""
    numbered = np.unique(labels, return_inverse=True)[1].astype(np.int64)  # those of a part of the queries have gaps
    found = Losses.of(losses, numbered)
    most = found.upper_limit(confidence)
    if found.sums.max() <= 0:
        # Where nothing is lost, nothing says whether the queries on a document would be lost one by one or together, as
        # when it is no longer in the corpus. Together is the worst: then there are no more draws than clusters.
        sizes = np.bincount(numbered)
        draws = len(losses) ** 2 / float(sizes @ sizes)
        most = max(most, found.mean + 1 - (1 - confidence) ** (1 / draws))
    return found.mean, most
