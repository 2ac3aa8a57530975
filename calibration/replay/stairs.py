"""Staircases over times in which something came: drawn as finely as can be seen, and not across gaps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.replay.spans import Span
from retrieval.drift.effect import Float64

_PLACES = 600  # on the axis of time that can be told apart

Starts = NDArray[np.intp]  # where groups of values begin
Merge = Callable[[Float64, Starts], Float64]


@dataclass(frozen=True)
class Piece:
    """Each y holds from its x to the next."""

    xs: list[float]
    ys: list[float]


def largest(values: Float64, starts: Starts) -> Float64:
    """Of each group."""
    most: Float64 = np.maximum.reduceat(values, starts)
    return most


def average(values: Float64, starts: Starts) -> Float64:
    """Of each group."""
    mean: Float64 = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    return mean


def stairs(at: Sequence[float], values: Float64, end: float, present: Sequence[Span], merge: Merge) -> list[Piece]:
    """A piece for each span: values[i] holds from at[i] to at[i + 1], the last one to `end`.

    What lies too close to be told apart becomes one step: `merge` makes one value of several.
    """
    if not len(values):
        return []
    times = np.array(at)
    places = np.floor((times - times[0]) / max(end - times[0], 1e-9) * _PLACES)
    starts = np.flatnonzero(np.append(True, np.diff(places) > 0))
    times, values = times[starts], merge(values, starts)
    pieces = []
    for span in present:
        left, right = max(span.start, float(times[0])), min(span.end, end)
        if left > right:
            continue
        within = np.flatnonzero((times > left) & (times <= right))
        rows = [int(np.searchsorted(times, left, side="right")) - 1, *within.tolist()]
        xs = [left, *times[within].tolist(), right]
        pieces.append(Piece(xs, [*values[rows].tolist(), float(values[rows[-1]])]))
    return pieces
