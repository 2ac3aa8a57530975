"""The release in service: opened beside the event loop, put in the place of another in one step, let go at the end."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from taugate.errors import InputError, TaugateError
from taugate.service.access.access import Access
from taugate.service.cache.cache import Cache, open_cache
from taugate.service.drift.watch import Watch
from taugate.service.errors import NotReady, ReloadFailed
from taugate.service.lifecycle.loading import Load, Opener
from taugate.service.metrics import Metrics
from taugate.service.pipeline.admission import Admission
from taugate.service.pipeline.answering import Answering
from taugate.service.pipeline.engine import Engine
from taugate.service.runtime.resources import give_back
from taugate.service.settings import Settings
from taugate.service.shadow.shadow import Shadowing

_log = logging.getLogger("taugate.serving")


@dataclass(frozen=True)
class Turn:
    """What a reload did: the release in service before and after it, and the one that is tried beside it."""

    previous: str
    release: str
    shadow: str | None = None


class Serving:
    """State of one process: loading, ready, failed or stopping. Of one event loop.

    access: a release has to have the fields of its keys' filters;
    failure: why no release could be loaded, which ends the process; on_failure: called then; on_ready: called when one
    could; refused: the release that was to take the place of the one in service and could not.
    """

    def __init__(self, settings: Settings, metrics: Metrics, access: Access, load_release: Load | None = None) -> None:
        self._settings, self._metrics, self._access = settings, metrics, access
        self._opener = Opener(settings, metrics, load_release)
        self.shadowing = Shadowing(self._opener, metrics, settings.lifecycle.shadow_share)
        self._one_at_a_time = asyncio.Lock()
        self.admission = Admission(
            settings.admission.queue_limit, settings.admission.deadline_ms / 1000, metrics.queue_depth.set
        )
        self._cache: Cache | None = None
        self._answering: Answering | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.loaded_at: datetime | None = None
        self.refused: str | None = None
        self.failure: Exception | None = None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None

    @property
    def answering(self) -> Answering:
        """What answers. Raises NotReady while there is nothing that can."""
        if self._stopping:
            raise NotReady("the service is shutting down")
        if self._answering is None:
            raise NotReady("the release is being loaded" if self.failure is None else "no release could be loaded")
        return self._answering

    async def is_behind(self) -> bool:
        """Whether another release is to be served, or to be tried, and was not refused already. Raises ReleaseError."""
        async with self._one_at_a_time:  # what is being opened is neither in service yet nor refused
            current, shadow = await self._opener.pointers()
        in_service = self.answering.release_id
        known = self.refused or in_service  # back to the one in service is news as well, where another was refused
        return current not in {None, known} or self.shadowing.is_behind(shadow, in_service)

    async def start(self) -> None:
        """Load the current release in a thread, so that /livez answers meanwhile."""
        try:
            async with self._one_at_a_time:
                self._cache = open_cache(self._settings, self._metrics)
                engine = await self._opener.open(await self._opener.current(at_start=True))
                await self._fits(engine)
                self._begin(engine, self._cache)
                self.on_ready()
                await self.shadowing.renew(engine)
        except Exception as error:  # noqa: BLE001 (whatever it is ends the process, where serve() raises it again)
            self.failure = error
            self.on_failure()

    async def reload(self) -> Turn:
        """Put the current release in the place of the one in service, where they differ.

        It is opened beside the other, which goes on answering; from one request to the next the new one answers, and
        the old one is let go after its last reply. Raises ReloadFailed, and nothing has changed then; NotReady.
        """
        async with self._one_at_a_time:
            previous = self.answering.release_id
            try:
                turn = await self._turn(previous)
            except NotReady:
                raise
            except Exception as error:
                self._metrics.observe_reload("failed")
                known = isinstance(error, TaugateError | OSError)
                fields = {"reason": str(error), "release": previous}
                message = "the current release cannot be served, and the one before stays"
                _log.error(message, exc_info=None if known else error, extra={"fields": fields})
                reason = str(error) if known else "the log says why"
                raise ReloadFailed(f"{previous} stays in service: {reason}") from error
            self.refused = None
            await self.shadowing.renew(self.answering.engine)
            self._metrics.observe_reload("unchanged" if turn.release == turn.previous else "loaded")
            return replace(turn, shadow=self.shadowing.release_id)

    async def _turn(self, previous: str) -> Turn:
        release = await self._opener.current()
        if release.name == previous:
            return Turn(release.name, release.name)
        self.refused = release.name  # until it is in service
        engine = await self._opener.open(release)
        await self._fits(engine)
        assert self._cache is not None  # noqa: S101 (for the type checker: there is one since the start)
        old = self.answering
        self._begin(engine, self._cache)
        leaving = asyncio.create_task(self._leave(old))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return Turn(previous, release.name)

    async def _fits(self, engine: Engine) -> None:
        """Whether it may answer, as keys are now. Raises NotReady or InputError where not, and it is closed then."""
        try:
            if self._stopping:
                raise NotReady("the service is shutting down")
            self._access.serve(engine.release.metadata)
        except (NotReady, InputError):
            await asyncio.to_thread(engine.close)
            await asyncio.to_thread(engine.release.close)
            raise

    def _begin(self, engine: Engine, cache: Cache) -> None:
        """In one step: no request comes in between."""
        metrics, release = self._metrics, engine.release
        self.loaded_at = datetime.now(UTC)
        metrics.announce(release.manifest, self.loaded_at.timestamp())
        watch = Watch(engine, self._settings, metrics.of_release()) if self._settings.drift.enabled else None
        self._answering = Answering(engine, cache, metrics, watch)
        _log.info("ready", extra={"fields": {"release": release.manifest.release_id, "precision": release.precision}})

    async def _leave(self, old: Answering) -> None:
        """The old release answers what it was asked before it was replaced, and goes."""
        await old.users.gone()
        await old.close(replaced=True)
        _log.info("let go", extra={"fields": {"release": old.release_id}})
        del old
        await asyncio.to_thread(give_back)

    async def stop(self) -> None:
        """Turn readiness off and wait for what is in flight."""
        self._stopping = True
        if self._answering is not None:
            await self._answering.close()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self.shadowing.close()
        if self._cache is not None:
            await self._cache.close()
        self._opener.close()
