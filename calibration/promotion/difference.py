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
        losses = Losses.of(old.values - new.values, _numbered(new.labels))
        return Difference(losses.mean, losses.upper_limit(confidence), "paired")
    mean = float(old.values.mean() - new.values.mean())
    above = _above(old.values, old.labels, confidence)
    below = _above(1 - new.values, new.labels, confidence)
    return Difference(mean, min(1.0, mean + math.hypot(above, below)), "two samples")


def _above(values: PerQuery, labels: Labels, confidence: float) -> float:
    """How far the upper limit of a mean of values in 0…1 is above it."""
    losses = Losses.of(values, _numbered(labels))
    return losses.upper_limit(confidence) - losses.mean


def _numbered(labels: Labels) -> Labels:
    """0, 1, … without a gap: those of a part of the queries have some."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
