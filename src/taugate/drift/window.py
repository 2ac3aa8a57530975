"""A sliding window over batches of observations: bounded in number and in age."""

from collections import deque
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np

from taugate.drift.observations import Columns

Batch = TypeVar("Batch", bound=Columns)


class SlidingWindow(Generic[Batch]):
    """Batches in the order in which they came.

    Attributes:
        most: How many rows are kept.
        seconds: How old a row may be.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._batches: deque[Batch] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, batch: Batch) -> None:
        """Add a batch, and drop the oldest rows that are too many."""
        self._batches.append(batch)
        self._count += len(batch)
        self._drop(self._count - self._most)

    def at(self, now: float) -> list[Batch]:
        """Return the batches in the window, oldest first.

        Args:
            now: Unix time in seconds.
        """
        self._clip_to(now)
        while self._batches and (old := int(np.searchsorted(self._batches[0].at, now - self._seconds))):
            self._drop(old)
        return list(self._batches)

    def _clip_to(self, now: float) -> None:
        """Clip times ahead of a clock that was set back: else they stay, and what follows, until the clock is there."""
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
