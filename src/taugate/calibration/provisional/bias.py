"""The bias of figures on generated queries, from public data sets on which people's queries were measured as well.

The table bias.json has a row for each data set and encoder. Two encoders on one data set are not independent, so their
mean is one observation. A new corpus is a further draw from the same population of data sets, so its bias is expected
in a prediction interval, which is wider than the confidence interval of the mean.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from scipy import stats

from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.records import BiasRecord

_TABLE = "bias.json"
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeasuredSet:
    """Generated and human queries of one public data set, searched with one encoder; every figure is in 0…1.

    Attributes:
        set: Name of the data set.
        encoder: Name of the encoder.
        accuracy_generated: accuracy@K of generated queries without a threshold.
        accuracy_human: accuracy@K of human queries without a threshold.
        loss_generated: Accuracy of generated queries lost to the τ that was calibrated on them.
        loss_human: Accuracy of human queries lost to the same τ.
    """

    set: str
    encoder: str
    accuracy_generated: float
    accuracy_human: float
    loss_generated: float
    loss_human: float


def read_table() -> list[MeasuredSet]:
    """Read the measurements that come with Taugate."""
    rows = json.loads((files("taugate.calibration.provisional") / _TABLE).read_text(encoding="utf-8"))
    return [MeasuredSet(**row) for row in rows]


def measured_bias() -> BiasRecord | None:
    """Return the bias to expect on a new corpus; None if the table has fewer than two data sets."""
    return expected_bias(read_table())


def expected_bias(table: Sequence[MeasuredSet]) -> BiasRecord | None:
    """Return the expected difference of figures on generated and on human queries for a further data set.

    None with fewer than two data sets, because their variance is unknown.
    """
    accuracy = _mean_of_each_set((row.set, row.accuracy_generated - row.accuracy_human) for row in table)
    loss = _mean_of_each_set((row.set, row.loss_generated - row.loss_human) for row in table)
    if len(accuracy) < 2:
        return None
    return BiasRecord(**prediction_interval(accuracy).model_dump(), sets=len(accuracy), loss=prediction_interval(loss))


def _mean_of_each_set(differences: Iterable[tuple[str, float]]) -> list[float]:
    """Average differences, given with the names of their data sets, over the encoders of each data set."""
    by_set = defaultdict(list)
    for name, difference in differences:
        by_set[name].append(difference)
    return [float(np.mean(values)) for values in by_set.values()]


def prediction_interval(differences: Sequence[float]) -> Interval:
    """Return the mean of m differences and the 95 % prediction interval for one further difference.

    mean ± t(.975, m − 1) · s · √(1 + 1/m), s the standard deviation with m − 1: it covers the next difference 19 times
    in 20 if all m + 1 are independent and normal (Hahn and Meeker, "Statistical Intervals", 1991, §4.7). Limits are
    clipped to −1 and 1, the range of a difference of two shares.

    Args:
        differences: Differences of two shares, in −1…1, at least two.
    """
    m = len(differences)
    mean, deviation = float(np.mean(differences)), float(np.std(differences, ddof=1))
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, m - 1)) * deviation * float(np.sqrt(1 + 1 / m))
    return Interval(mean=mean, lower=max(-1.0, mean - half), upper=min(1.0, mean + half))
