"""Staircases over the times in which queries came: as fine as can be seen, and not across gaps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taugate.drift.effect import Float64

_USUAL = 10  # a gap is so many times as long as a block usually takes,
_SHARE = 1 / 50  # and so much of the whole that it can be seen
_PLACES = 600  # on the axis of time that can be told apart

Starts = NDArray[np.intp]  # where groups of values begin
Merge = Callable[[Float64, Starts], Float64]


class Span(NamedTuple):
    """Unix times."""

    start: float
    end: float


def spans(at: Float64, blocks: Sequence[Span]) -> list[Span]:
    """at: when things came, (n,) in order, n ≥ 1; blocks: that they filled, of which there may be none."""
    whole = Span(float(at[0]), float(at[-1]))
    usual = float(np.median([block.end - block.start for block in blocks or [whole]]))
    cuts = np.flatnonzero(np.diff(at) > max(_USUAL * usual, _SHARE * (whole.end - whole.start)))
    starts, ends = at[np.append(0, cuts + 1)], at[np.append(cuts, len(at) - 1)]
    return [Span(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


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
