"""One alarm: on when the evidence is there, off when what has come since is as it was at calibration."""

from dataclasses import dataclass
from typing import Generic

import numpy as np

from retrieval.drift.effect import Float64
from retrieval.drift.evidence import Evidence
from retrieval.drift.signals import Seen, Signal

# Without new evidence before an alarm ends: the mean of a share over so many is within .062 (95 %, Cohen's h), which is
# less than the smallest effect that counts.
_QUIET = 1000
# Rows at a time: of more, the numbers would take hundreds of megabytes; of fewer, the interpreter would change hands
# with whoever answers requests for each of many small products.
_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class Change:
    """An alarm that begins or ends with the row-th of what was seen."""

    signal: str
    row: int
    on: bool


class Alarm(Generic[Seen]):
    """Of one signal.

    smallest_effect: in Cohen's h, what is worth an alarm; seldom: while no mean is outside its bounds, the expected
    number of rows until a false alarm is at least this.
    """

    def __init__(self, signal: Signal[Seen], smallest_effect: float, seldom: float) -> None:
        self.signal = signal
        self.on = False
        self.log_evidence = -np.inf
        below, above = self._below, self._above = signal.bounds(smallest_effect)
        # A bound at the end of 0…1 cannot be crossed.
        self._watched = np.concatenate([np.flatnonzero(below > 0), np.flatnonzero(above < 1)])
        upper = np.arange(len(self._watched)) >= (below > 0).sum()
        bounds = np.concatenate([below[below > 0], above[above < 1]])
        self._evidence = Evidence(bounds, upper) if len(bounds) else None
        self._threshold = np.log(seldom * (self._evidence.detectors if self._evidence else 1))
        self._begin_quiet()

    @property
    def share_of_threshold(self) -> float:
        """Logarithm of the evidence over that which an alarm takes: 0 is none, 1 an alarm."""
        return float(np.clip(self.log_evidence / self._threshold, 0.0, 1.0))

    def update(self, seen: Seen) -> list[Change]:
        """What n rows, in their order, begin or end."""
        values = self.signal.variables(seen)
        changes: list[Change] = []
        start = 0
        while self._evidence is not None and start < len(values):
            stop = min(len(values), start + (_QUIET - self._rows if self.on else _BLOCK))
            logs = self._evidence.update(values[start:stop, self._watched])
            crossed = np.flatnonzero(logs >= self._threshold)
            if len(crossed):
                start += int(crossed[0]) + 1
                self._begin(start - 1, changes)
            else:
                self.log_evidence = float(logs[-1])
                self._count(values[start:stop], stop - 1, changes)
                start = stop
        return changes

    def _begin(self, row: int, changes: list[Change]) -> None:
        if not self.on:
            changes.append(Change(self.signal.name, row, on=True))
        self.on = True
        self.log_evidence = self._threshold
        if self._evidence is not None:
            self._evidence.restart()
        self._begin_quiet()

    def _count(self, values: Float64, row: int, changes: list[Change]) -> None:
        """End the alarm after enough rows whose means are within the bounds."""
        self._rows += len(values)
        self._sums += values.sum(axis=0)
        if not self.on or self._rows < _QUIET:
            return
        means = self._sums / self._rows
        if ((means >= self._below) & (means <= self._above)).all():
            self.on = False
            changes.append(Change(self.signal.name, row, on=False))
        self._begin_quiet()

    def _begin_quiet(self) -> None:
        self._rows, self._sums = 0, np.zeros(len(self.signal.means))
