"""The last things seen: at most so many, and none older than so long."""

from collections import deque
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np

from taugate.drift.observations import Columns

Batch = TypeVar("Batch", bound=Columns)


class Window(Generic[Batch]):
    """Batches in the order in which they came. most: things; seconds: how old they may be."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._batches: deque[Batch] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, batch: Batch) -> None:
        """Add a batch, and let go of what is too much."""
        self._batches.append(batch)
        self._count += len(batch)
        self._drop(self._count - self._most)

    def at(self, now: float) -> list[Batch]:
        """What is in the window at a Unix time, oldest first."""
        self._bring_back(now)
        while self._batches and (old := int(np.searchsorted(self._batches[0].at, now - self._seconds))):
            self._drop(old)
        return list(self._batches)

    def _bring_back(self, now: float) -> None:
        """What a clock that was set back has left ahead would stay, and keep what follows, until the clock is there."""
        for place, batch in enumerate(self._batches):
            if batch.at[-1] > now:
                self._batches[place] = replace(batch, at=np.minimum(batch.at, now))

    def _drop(self, rows: int) -> None:
        while rows > 0:
            first = self._batches.popleft()
            self._count -= len(first)
            if len(first) > rows:
                rest = first.take(slice(rows, None))
                self._batches.appendleft(rest)
                self._count += len(rest)
            rows -= len(first)
