"""How much worse a mean over queries may have become: a one-sided upper confidence limit.

Paired where both releases were asked the same queries: the limit of the gate (`calibration/risk/paired.py`). Otherwise
of two samples: the limits of both means put together by the method of variance estimates recovery (Zou and Donner,
"Construction of confidence limits about effect measures", Statist. Med. 27, 2008), which with Wilson's limits is
Newcombe's tenth method for two proportions (Statist. Med. 17, 1998). Here the limits of each mean are the gate's as
well, so that shares, NDCG and documents with many queries are all one case. Where documents are the units it is the
average document that has become worse, or has not.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from taugate.calibration.comparison.quantity import Sample
from taugate.calibration.metrics.clusters import Units
from taugate.calibration.risk.paired import least_loss, more, paired_losses

Test = Literal["paired", "two samples"]


@dataclass(frozen=True)
class Difference:
    """How much worse: the mean found, −1 … 1 and below 0 where it is better, and the most it is with a confidence.

    units: of the new release's queries; most_of_queries: the most that the average query has become worse, where
    `most` is that of the average document and both were asked the same; least: the most it would be had nothing
    changed, None of two samples, where that depends on what was found.
    """

    mean: float
    most: float
    test: Test
    units: Units
    most_of_queries: float | None
    least: float | None


def loss(old: Sample, new: Sample, confidence: float) -> Difference:
    """By how much the mean of `new` is below that of `old`; each has a query at least."""
    units = Units.of(new.labels)
    if np.array_equal(old.query, new.query):
        losses = old.values - new.values
        found, least = paired_losses(losses, units), least_loss(units, confidence)
        of_queries = None
        if units.unit == "document":
            of_queries = paired_losses(losses, units, "query").upper_limit(confidence)
        return Difference(found.mean, found.upper_limit(confidence), "paired", units, of_queries, least)
    # Both by document where one is, so that the two means are of the same thing.
    effect = max(units.design_effect, Units.of(old.labels).design_effect)
    units = replace(units, design_effect=effect)
    before, missed = paired_losses(old.values, Units(old.labels, effect)), paired_losses(1 - new.values, units)
    mean = before.mean - (1 - missed.mean)
    room = (each.upper_limit(confidence) - each.mean for each in (before, missed))
    return Difference(mean, min(1.0, mean + math.hypot(*room)), "two samples", units, None, None)


def queries_needed(old: Sample, new: Sample, margin: float, confidence: float) -> int | None:
    """So many queries like these would show that no more than the margin is lost.

    None for two samples, and where no number would.
    """
    if not np.array_equal(old.query, new.query):
        return None
    found = paired_losses(old.values - new.values, Units.of(new.labels))
    factor = more(found, margin, 1 - confidence)
    return None if factor is None else math.ceil(factor * len(new))
