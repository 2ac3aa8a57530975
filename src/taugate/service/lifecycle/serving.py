"""The release in service: loaded beside the event loop, put in the place of another in one step, let go at the end."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from taugate.errors import EngineUnavailable, InputError, TaugateError
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.corpus import EngineCorpus
from taugate.retrieval.release.reader import Release
from taugate.service.access.authorization import Authorizer
from taugate.service.cache.cache import TieredCache, open_cache
from taugate.service.drift.alarms import NO_DRIFT
from taugate.service.drift.watch import DriftWatch
from taugate.service.errors import EngineAway, NotReady, ReloadFailed
from taugate.service.lifecycle.loading import Load, ReleaseLoader
from taugate.service.lifecycle.reference import ComputedOnce, reference_report
from taugate.service.lifecycle.shadowing import Shadowing
from taugate.service.metrics import Metrics
from taugate.service.pipeline.queue import Admission
from taugate.service.pipeline.reply import CachedSearch
from taugate.service.pipeline.search import SearchPipeline
from taugate.service.runtime.resources import release_memory
from taugate.service.settings import Settings

_log = logging.getLogger("taugate.serving")
_ENGINE_PAUSE = 2.0  # seconds between two attempts to load a release whose engine does not answer


@dataclass(frozen=True)
class ReloadResult:
    """The outcome of a reload.

    Attributes:
        previous: Ids of the release in service before and after it.
        release: Ids of the release in service before and after it.
        shadow: Id of the shadow, None without one.
    """

    previous: str
    release: str
    shadow: str | None = None


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
        """Wait until no request is left."""
        await self._empty.wait()


class ActiveRelease:
    """A release that answers requests: its searches, the watch over its traffic, and the requests that it still has."""

    def __init__(self, search: CachedSearch, drift: DriftWatch | None) -> None:
        """search: of the release; drift: None where traffic is not watched."""
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

        A key with a filter is told nothing: what is watched is the traffic of others.

        Args:
            permitted: The filter of the caller's key.
        """
        return NO_DRIFT if self.drift is None or permitted else self.drift.report

    async def close(self, *, replaced: bool = False) -> None:
        """Finish the queries at work, refuse those that wait, and stop watching.

        Args:
            replaced: Another release is in service now, so that this one's drift alarms end with it.
        """
        await asyncio.to_thread(self.search.pipeline.close)
        if self.drift is not None:
            await self.drift.close(forget=replaced)
        await asyncio.to_thread(self.release.close)


class Serving:
    """State of one process: loading, ready, failed or stopping. Belongs to one event loop.

    failure: why no release could be loaded, which ends the process; on_ready, on_failure: called when the first release
    is in service, or cannot be; attempted: set once the first attempt to load a release has ended, whatever came of it;
    loaded_at: when the release came into service; refused: id of the release that was to replace the one in service and
    could not.
    """

    def __init__(
        self, settings: Settings, metrics: Metrics, access: Authorizer, load_release: Load | None = None
    ) -> None:
        """Load nothing yet.

        Args:
            settings: Of the service.
            metrics: Of the process.
            access: A release has to have the fields that its keys' filters name.
            load_release: See ReleaseLoader.
        """
        self._settings, self._metrics, self._access = settings, metrics, access
        self._loader = ReleaseLoader(settings, metrics, load_release)
        self.shadowing = Shadowing(self._loader, metrics, settings.lifecycle.shadow_share)
        self._one_at_a_time = asyncio.Lock()
        self._admission = Admission(
            settings.admission.queue_limit, settings.admission.deadline_ms / 1000, metrics.queue_depth.set
        )
        self._cache: TieredCache | None = None
        self._active: ActiveRelease | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._stopping = self._ending_announced = self._engine_away = False
        self._ending, self.attempted = asyncio.Event(), asyncio.Event()
        self.loaded_at: datetime | None = None
        self.refused: str | None = None
        self.failure: Exception | None = None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None

    @property
    def active(self) -> ActiveRelease:
        """The release in service.

        Raises:
            NotReady: While there is none, and when the service is shutting down.
        """
        if self._stopping:
            raise NotReady("the service is shutting down")
        if self._active is None and self._engine_away:
            raise EngineAway
        if self._active is None:
            raise NotReady("the release is being loaded" if self.failure is None else "no release could be loaded")
        return self._active

    @property
    def has_release(self) -> bool:
        """Whether a release has come into service."""
        return self._active is not None

    @property
    def ready(self) -> ActiveRelease:
        """The release in service, if it can answer, and the service is not about to stop.

        Raises as `active`, and EngineAway.
        """
        if self._ending_announced:
            raise NotReady("the service is shutting down")
        active = self.active
        for resource in active.release.resources:
            if isinstance(resource, EngineCorpus):
                resource.check()
        return active

    async def is_behind(self) -> bool:
        """Tell whether there is a new release to serve or to shadow, which was not refused yet.

        Raises:
            ReleaseError: .
        """
        async with self._one_at_a_time:  # what is being loaded is neither in service yet nor refused
            current, shadow = await self._loader.pointers()
        in_service = self.active.release_id
        known = self.refused or in_service  # back to the one in service is news as well, where another was refused
        return current not in {None, known} or self.shadowing.is_behind(shadow, in_service)

    async def start(self) -> None:
        """Load the current release in a thread, so that /livez answers meanwhile; wait where its engine is away."""
        try:
            self._cache = open_cache(self._settings, self._metrics)
            while not (self._ending.is_set() or await self._started(self._cache)):
                self.attempted.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), _ENGINE_PAUSE)
        except Exception as error:  # noqa: BLE001 (whatever it is ends the process, where serve() raises it again)
            self.failure = error
            self.on_failure()
        self.attempted.set()

    async def _started(self, cache: TieredCache) -> bool:
        """Put the current release into service; False where its engine does not answer."""
        try:
            async with self._one_at_a_time:
                pipeline = await self._loader.open(await self._loader.current(at_start=True))
                await self._check(pipeline)
                self._put_into_service(pipeline, cache)
                self._engine_away = False
                self.on_ready()
                await self.shadowing.renew(pipeline)
        except EngineUnavailable as error:
            self._loader.engine.unreachable()
            if not self._engine_away:
                _log.warning("the release cannot be loaded yet", extra={"fields": {"reason": str(error)}})
            self._engine_away = True
            return False
        return True

    def give_up(self) -> None:
        """Wait no longer for an engine that keeps the first release from being loaded."""
        self._ending.set()

    async def reload(self) -> ReloadResult:
        """Replace the release in service by the current one, where they differ.

        The new one is loaded while the other goes on answering; from one request to the next the new one answers, and
        the old one is let go after its last reply.

        Raises:
            ReloadFailed: , and nothing has changed then, or NotReady.
        """
        async with self._one_at_a_time:
            previous = self.active.release_id
            try:
                result = await self._replace(previous)
            except NotReady:
                raise
            except Exception as error:
                self._metrics.observe_reload("failed")
                if isinstance(error, EngineUnavailable):  # it may be served at the next look
                    self.refused = None
                known = isinstance(error, TaugateError | OSError)
                fields = {"reason": str(error), "release": previous}
                message = "the current release cannot be served, and the one before stays"
                _log.error(message, exc_info=None if known else error, extra={"fields": fields})
                reason = str(error) if known else "the log says why"
                raise ReloadFailed(f"{previous} stays in service: {reason}") from error
            self.refused = None
            await self.shadowing.renew(self.active.search.pipeline)
            self._metrics.observe_reload("unchanged" if result.release == result.previous else "loaded")
            return replace(result, shadow=self.shadowing.release_id)

    async def _replace(self, previous: str) -> ReloadResult:
        release = await self._loader.current()
        if release.name == previous:
            return ReloadResult(release.name, release.name)
        self.refused = release.name  # until it is in service
        pipeline = await self._loader.open(release)
        await self._check(pipeline)
        assert self._cache is not None  # noqa: S101 (for the type checker: there is one since the start)
        old = self.active
        self._put_into_service(pipeline, self._cache)
        leaving = asyncio.create_task(self._let_go(old))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return ReloadResult(previous, release.name)

    async def _check(self, pipeline: SearchPipeline) -> None:
        """Close the pipeline and its release where they may not answer, and raise NotReady or InputError."""
        try:
            if self._stopping:
                raise NotReady("the service is shutting down")
            self._access.serve(pipeline.release.fields)
        except (NotReady, InputError):
            await asyncio.to_thread(pipeline.close)
            await asyncio.to_thread(pipeline.release.close)
            raise

    def _put_into_service(self, pipeline: SearchPipeline, cache: TieredCache) -> None:
        """Make this the active release, in one step: no request comes in between."""
        metrics, release = self._metrics, pipeline.release
        self.loaded_at = datetime.now(UTC)
        metrics.set_release(release.manifest, self.loaded_at.timestamp())
        drift = (
            DriftWatch(pipeline, self._settings, metrics.new_release_registry())
            if self._settings.drift.enabled
            else None
        )
        self._active = ActiveRelease(CachedSearch(pipeline, cache, self._admission, metrics), drift)
        _log.info("ready", extra={"fields": {"release": release.manifest.release_id, "precision": release.precision}})

    async def _let_go(self, old: ActiveRelease) -> None:
        """Close a release that was replaced, once it has answered the requests that it still has."""
        await old.in_flight.drained()
        await old.close(replaced=True)
        _log.info("let go", extra={"fields": {"release": old.release_id}})
        del old
        await asyncio.to_thread(release_memory)

    def announce_end(self) -> None:
        """Fail the readiness probe from now on; all else is answered as before."""
        self._ending_announced = True

    async def stop(self) -> None:
        """Turn readiness off, wait for what is in flight, and close everything."""
        self._stopping = True
        if self._active is not None:
            await self._active.close()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self.shadowing.close()
        if self._cache is not None:
            await self._cache.close()
        self._loader.close()
