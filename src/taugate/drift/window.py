"""A sliding window over batches of observations, bounded in number and in age."""

from collections import deque
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np

from taugate.drift.observations import Columns

Batch = TypeVar("Batch", bound=Columns)


class SlidingWindow(Generic[Batch]):
    """Batches in the order of arrival."""

    def __init__(self, max_rows: int, seconds: float) -> None:
        """Keep `max_rows` rows, none older than `seconds`."""
        self._max_rows, self._seconds = max_rows, seconds
        self._batches: deque[Batch] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, batch: Batch) -> None:
        """Add a batch, and drop the oldest rows beyond the limit."""
        if not len(batch):
            return
        self._batches.append(batch)
        self._count += len(batch)
        self._drop(self._count - self._max_rows)

    def at(self, now: float) -> list[Batch]:
        """Return the batches in the window at `now`, a Unix time in seconds, oldest first."""
        self._clip_to(now)
        while self._batches and (old := int(np.searchsorted(self._batches[0].at, now - self._seconds))):
            self._drop(old)
        return list(self._batches)

    def _clip_to(self, now: float) -> None:
        """Clip times in the future, left by a clock that was set back; else they would outlive all that follows."""
        for index, batch in enumerate(self._batches):
            if batch.at[-1] > now:
                self._batches[index] = replace(batch, at=np.minimum(batch.at, now))

    def _drop(self, rows: int) -> None:
        while rows > 0:
            first = self._batches.popleft()
            self._count -= len(first)
            if len(first) > rows:
                remaining = first.take(slice(rows, None))
                self._batches.appendleft(remaining)
                self._count += len(remaining)
            rows -= len(first)
