"""Work that is cheaper together, done by whoever of several threads finds nobody at it, for all who bring some."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Combiner(Generic[Item]):
    """work: is given some of what was brought, at most `most`, by one thread at a time; it raises nothing."""

    def __init__(self, work: Callable[[list[Item]], None], most: int) -> None:
        self._work, self._most = work, most
        self._brought: deque[Item] = deque()
        self._working = threading.Lock()

    def bring(self, items: Iterable[Item]) -> None:
        """Do the work, or leave the items to the thread that is at it, which looks again before it leaves."""
        self._brought.extend(items)
        # Looked at again after the lock is given back: what was brought meanwhile found it taken.
        while self._brought and self._working.acquire(blocking=False):
            try:
                batch = [self._brought.popleft() for _ in range(min(len(self._brought), self._most))]
                if batch:
                    self._work(batch)
            finally:
                self._working.release()
