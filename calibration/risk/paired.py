"""Paired losses of queries, baseline − candidate, and what they show of their mean: one question, two units.

Where queries share documents the evidence is an e-value by document (`e_values`). Where they do not, a query is a draw
of its own, and exponential tilting of the observed losses is sharper (`calibration/metrics/mean_loss.py`).
"""

from typing import Protocol, Self

import numpy as np

from taugate.calibration.metrics.clusters import Units
from taugate.calibration.metrics.mean_loss import Losses, PerQuery
from taugate.calibration.risk.bounds import DocumentLosses, Statement

_MOST = 1e6  # times as many labels: nobody has them, and more is as good as never


class MeanLoss(Protocol):
    """What is known of a mean loss, −1 … 1."""

    @property
    def mean(self) -> float:
        """As observed, of a unit."""
        ...

    def p_value(self, margin: float) -> float:
        """Of "the mean is `margin` or more"."""
        ...

    def upper_limit(self, confidence: float) -> float:
        """One-sided."""
        ...

    def lower_limit(self, confidence: float) -> float:
        """One-sided."""
        ...

    def times(self, factor: float) -> Self:
        """With so many times as many units, and losses like these."""
        ...


def paired_losses(losses: PerQuery, units: Units, statement: Statement = "document") -> MeanLoss:
    """losses: (q,), of the queries of `units`; statement: whose mean is meant where the unit is the document.

    Losses beyond ±1 are cut: the gate adds up what a projection and an index change, and no query loses more than all.
    """
    bounded, labels = np.clip(losses, -1.0, 1.0), np.unique(units.labels, return_inverse=True)[1]
    if units.unit == "document":
        return DocumentLosses.of(bounded, labels, statement)
    return Losses.of(bounded, labels)


def least_loss(units: Units, confidence: float) -> float:
    """The smallest loss that these queries can exclude: the upper limit of a candidate that changes nothing."""
    return paired_losses(np.zeros(len(units)), units).upper_limit(confidence)


def more(losses: MeanLoss, margin: float, alpha: float) -> float | None:
    """How many times as many labels would show a mean loss below the margin, if they were like these; 1 or more.

    None where none would: the mean is too near to the margin, or above it.
    """
    high = 1.0
    while losses.times(high).p_value(margin) > alpha:
        if high >= _MOST:
            return None
        high *= 2
    low = high / 2
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if losses.times(middle).p_value(margin) <= alpha else (middle, high)
    return max(1.0, high)
