"""A release that serves requests."""

import asyncio

from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.release.reader import Release
from taugate.service.drift.alarms import NO_DRIFT
from taugate.service.drift.watch import DriftWatch
from taugate.service.lifecycle.reference import ComputedOnce, reference_report
from taugate.service.pipeline.reply import CachedSearch


class InFlight:
    """Counts requests: `with in_flight:` around each. Belongs to one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def __enter__(self) -> None:
        self._count += 1
        self._empty.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._empty.set()

    async def drained(self) -> None:
        """Wait until no request is in flight."""
        await self._empty.wait()


class ActiveRelease:
    """A release that serves requests: its searches, the watch over its traffic, and its requests in flight."""

    def __init__(self, search: CachedSearch, drift: DriftWatch | None) -> None:
        """Start serving; `drift` is None if traffic is not watched."""
        self.search, self.drift = search, drift
        self.reference = ComputedOnce(lambda: reference_report(self.release))
        self.in_flight = InFlight()

    @property
    def release(self) -> Release:
        """The release itself."""
        return self.search.pipeline.release

    @property
    def release_id(self) -> str:
        """Id of the release."""
        return self.release.manifest.release_id

    def drift_report(self, permitted: Filter) -> bytes:
        """Return the field `drift` of replies, as JSON.

        A key with a filter (`permitted`) is told nothing, because drift reveals the traffic of other keys.
        """
        return NO_DRIFT if self.drift is None or permitted else self.drift.report

    async def close(self, *, replaced: bool = False) -> None:
        """Finish the current queries, refuse the waiting ones, and stop watching.

        If another release has `replaced` this one, its drift alarms are deleted.
        """
        await asyncio.to_thread(self.search.pipeline.close)
        if self.drift is not None:
            await self.drift.close(forget=replaced)
        await asyncio.to_thread(self.release.close)
