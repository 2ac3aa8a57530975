"""Sensitivity: the smallest shift of the traffic that an alarm detects, computed without simulation.

For blocks of independent queries the logarithm of a bet has a known mean and deviation (`EDetectors.growth`), and so
has the evidence after n blocks. A shift is detected within n blocks, nine times out of ten, if the mean less 1.28
standard deviations reaches the threshold. `make drift-benchmarks` verifies this by simulation.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from taugate.drift.alarm import Alarm, alarms_of
from taugate.drift.observations import Float64, Observations, calibration_observations
from taugate.drift.rules import BLOCK, DEFAULT_RULES
from taugate.drift.signals import Signal, cohens_h, quality_signal, query_signals, shifted, theta_of
from taugate.retrieval.release.evidence import DriftRecord, Shift, Shifts
from taugate.retrieval.release.query_arrays import Reference

WITHIN = 10_000  # queries
_STEPS = 40  # of a bisection: beyond the digits of a float32
_MAX_EFFECT = float(np.pi)
_MAX_SHIFT = 2.0  # from the lowest cosine to the highest


def sensitivity(reference: Reference, percentile: float) -> DriftRecord:
    """Compute the smallest shifts that the alarms of a release detect with the default settings.

    θ is a percentile, 0…100, of the top-K similarities of the calibration queries.
    """
    theta = theta_of(reference, percentile)
    topk, *shares = [*query_signals(reference, theta), quality_signal(reference)]
    alarms = {alarm.signal: alarm for alarm in alarms_of([topk, *shares])}
    shifts = {
        share.name: Shifts(
            lower=_shift_of_share(alarms[share.name], share, -1), higher=_shift_of_share(alarms[share.name], share, 1)
        )
        for share in shares
    }
    calibration = calibration_observations(reference)
    shifts[topk.name] = Shifts(
        lower=_shift_of_similarity(alarms[topk.name], topk, calibration, -1),
        higher=_shift_of_similarity(alarms[topk.name], topk, calibration, 1),
    )
    return DriftRecord(within=WITHIN, block=BLOCK, signals=shifts)


def _shift_of_share(alarm: Alarm, signal: Signal[Any], direction: int) -> Shift | None:
    """Return the smallest shift of a share, such as ROE, in one direction: −1 or 1."""
    means, block = signal.means, DEFAULT_RULES.judged_block if signal.judged else BLOCK
    h = _smallest(lambda size: _is_detected(alarm, shifted(means, direction * size), block), _MAX_EFFECT)
    if h is None:
        return None
    points = shifted(means, direction * h) - means
    return Shift(points=float(points[0]), effect=float(cohens_h(means + points, means)[0]))


def _shift_of_similarity(
    alarm: Alarm, signal: Signal[Observations], calibration: Observations, direction: int
) -> Shift | None:
    """Return the smallest shift of the similarity of all results of all queries, in one direction: −1 or 1."""

    def means(size: float) -> Float64:
        top = calibration.top + np.float32(direction * size)
        shifted_means: Float64 = signal.variables(replace(calibration, top=top)).mean(axis=0)
        return shifted_means

    # Scores with a lexical part may be further apart than cosines.
    largest = max(_MAX_SHIFT, float(np.ptp(calibration.top)))
    size = _smallest(lambda size: _is_detected(alarm, means(size)), largest)
    if size is None:
        return None
    effects = cohens_h(means(size), signal.means)
    return Shift(points=direction * size, effect=float(effects[np.abs(effects).argmax()]))


def _is_detected(alarm: Alarm, means: Float64, block: int = BLOCK) -> bool:
    return alarm.detects(means, WITHIN // block, block)


def _smallest(detected: Callable[[float], bool], largest: float) -> float | None:
    """Return the smallest size that is detected, by bisection; None if not even the largest is."""
    if not detected(largest):
        return None
    low, high = 0.0, largest
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if detected(middle) else (middle, high)
    return high
