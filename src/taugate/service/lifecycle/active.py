"""A release that serves requests."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from taugate.retrieval.documents.filters import Filter
from taugate.service.drift.alarms import NO_DRIFT
from taugate.service.drift.watch import DriftWatch
from taugate.service.drift.watched import WatchedRelease
from taugate.service.errors import UnsupportedByRelease
from taugate.service.lifecycle.gate import GateRelease
from taugate.service.lifecycle.reference import ComputedOnce, reference_report
from taugate.service.pipeline.reply import CachedSearch

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.release.reader import Release
    from taugate.service.pipeline.search import SearchPipeline


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


class Opened(NamedTuple):
    """A release that is open.

    Attributes:
        release: The release.
        pipeline: Searches it; None if it has no documents.
        gate: The release itself if it cuts the results of another retriever; else None.
    """

    release: "Release | GateRelease"
    pipeline: "SearchPipeline | None" = None
    gate: GateRelease | None = None

    def close(self) -> None:
        """Finish the current queries, refuse the waiting ones, and close the release."""
        if self.pipeline is not None:
            self.pipeline.close()
        self.release.close()


class ActiveRelease:
    """A release that serves requests: it is searched, or cuts results of another retriever.

    Attributes:
        drift: The watch over its traffic, None if traffic is not watched.
        reference: Its calibration, for charts.
        in_flight: Its requests in flight.
        loaded_at: When it was loaded.
        memory_warning: That it leaves little memory; None if it leaves enough.
    """

    def __init__(
        self,
        serves: Opened,
        drift: DriftWatch | None,
        search: CachedSearch | None = None,
        memory_warning: str | None = None,
    ) -> None:
        """Start serving searches, or a gate if `search` is None."""
        self._serves, self._search = serves, search
        self.drift, self.memory_warning = drift, memory_warning
        self.loaded_at = datetime.now(UTC)
        self.reference = ComputedOnce(lambda: reference_report(self.watched))
        self.in_flight = InFlight()

    @property
    def watched(self) -> WatchedRelease:
        """What both kinds of releases have: manifest, reference and, if they are searched, documents."""
        return self._serves.release

    @property
    def pipeline(self) -> "SearchPipeline | None":
        """The search pipeline; None if the release has no documents."""
        return self._serves.pipeline

    @property
    def search(self) -> CachedSearch:
        """The searches; raises UnsupportedByRelease if the release has no documents."""
        if self._search is None:
            raise UnsupportedByRelease(
                "the release in service was calibrated on a run of another retriever, so it has no documents to "
                "search; send the retriever's results to /gate"
            )
        return self._search

    @property
    def gate(self) -> GateRelease:
        """The gate; raises UnsupportedByRelease if the release has documents of its own."""
        if self._serves.gate is None:
            raise UnsupportedByRelease(
                "the release in service has documents of its own, which /search searches; to cut results of another "
                "retriever, serve a release of `taugate calibrate-run`"
            )
        return self._serves.gate

    @property
    def release(self) -> "Release":
        """The release that is searched; raises UnsupportedByRelease if it has no documents."""
        return self.search.pipeline.release

    @property
    def release_id(self) -> str:
        """Id of the release."""
        return self.watched.manifest.release_id

    def drift_report(self, permitted: Filter) -> bytes:
        """Return the field `drift` of replies, as JSON.

        A key with a filter (`permitted`) is told nothing, because drift reveals the traffic of other keys.
        """
        return NO_DRIFT if self.drift is None or permitted else self.drift.report

    async def close(self, *, replaced: bool = False) -> None:
        """Finish the current queries, refuse the waiting ones, and stop watching.

        If another release has `replaced` this one, its drift alarms are deleted.
        """
        if self.pipeline is not None:
            await asyncio.to_thread(self.pipeline.close)
        if self.drift is not None:
            await self.drift.close(forget=replaced)
        await asyncio.to_thread(self._serves.release.close)
