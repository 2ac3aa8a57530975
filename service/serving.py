"""The release in service: opened beside the event loop, put in the place of another in one step, let go at the end."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from retrieval.errors import TaugateError
from retrieval.release.catalog import find
from retrieval.release.reader import load
from service.admission import Admission
from service.answering import Answering
from service.cache.cache import Cache, open_cache
from service.drift.watch import Watch
from service.engine import Engine
from service.errors import NotReady, ReloadFailed
from service.memory import give_back
from service.metrics import Metrics
from service.opening import Load, Opener
from service.settings import Settings

_log = logging.getLogger("taugate.serving")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Turn:
    """What a reload did: the release in service before and after it."""

    previous: str
    release: str


class Serving:
    """State of one process: loading, ready, failed or stopping. Of one event loop.

    failure: why no release could be loaded, which ends the process; on_failure: called then; on_ready: called when one
    could; refused: the release that was to take the place of the one in service and could not.
    """

    def __init__(self, settings: Settings, metrics: Metrics, load_release: Load = load) -> None:
        self._settings, self._metrics = settings, metrics
        self._opener = Opener(settings, metrics, load_release)
        self._thread = ThreadPoolExecutor(1, "taugate-load")
        self._one_at_a_time = asyncio.Lock()
        self.admission = Admission(settings.queue_limit, settings.deadline_ms / 1000, metrics.queue_depth.set)
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

    async def start(self) -> None:
        """Load the current release in a thread, so that /livez answers meanwhile."""
        try:
            async with self._one_at_a_time:
                self._cache = open_cache(self._settings, self._metrics)
                release = await self._off_the_loop(self._current)
                self._begin(await self._off_the_loop(self._opener.open, release), self._cache)
                self.on_ready()
        except Exception as error:  # noqa: BLE001 (whatever it is ends the process, where serve() raises it again)
            self.failure = error
            self.on_failure()

    async def reload(self) -> Turn:
        """Put the current release in the place of the one in service, where they differ.

        It is opened beside the other, which goes on answering; from one request to the next the new one answers, and
        the old one is let go after its last reply. Raises ReloadFailed, and nothing has changed then; NotReady.
        """
        async with self._one_at_a_time:
            old = self.answering
            try:
                turn = await self._turn(old)
            except NotReady:
                raise
            except Exception as error:
                self._metrics.observe_reload("failed")
                known = isinstance(error, TaugateError | OSError)
                fields = {"reason": str(error), "release": old.release_id}
                message = "the current release cannot be served, and the one before stays"
                _log.error(message, exc_info=None if known else error, extra={"fields": fields})
                reason = str(error) if known else "the log says why"
                raise ReloadFailed(f"{old.release_id} stays in service: {reason}") from error
            self.refused = None
            self._metrics.observe_reload("unchanged" if turn.release == turn.previous else "loaded")
            return turn

    async def _turn(self, old: Answering) -> Turn:
        release = await self._off_the_loop(self._current)
        if release.name == old.release_id:
            return Turn(release.name, release.name)
        self.refused = release.name  # until it is in service
        engine = await self._off_the_loop(self._opener.open, release)
        if self._cache is None or self._stopping:
            await asyncio.to_thread(engine.close)
            raise NotReady("the service is shutting down")
        self._begin(engine, self._cache)
        leaving = asyncio.create_task(self._leave(old))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return Turn(old.release_id, release.name)

    def _begin(self, engine: Engine, cache: Cache) -> None:
        """In one step: no request comes in between."""
        metrics, release = self._metrics, engine.release
        self.loaded_at = datetime.now(UTC)
        metrics.announce(release.manifest, self.loaded_at.timestamp())
        watch = Watch(engine, self._settings, metrics.of_release()) if self._settings.drift else None
        self._answering = Answering(engine, cache, metrics, watch)
        _log.info("ready", extra={"fields": {"release": release.manifest.release_id, "precision": release.precision}})

    async def _leave(self, old: Answering) -> None:
        """The old release answers what it was asked before it was replaced, and goes."""
        await old.users.gone()
        await old.close()
        _log.info("let go", extra={"fields": {"release": old.release_id}})
        del old
        await asyncio.to_thread(give_back)

    def _current(self) -> Path:
        return find(self._settings.releases)

    async def _off_the_loop(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def stop(self) -> None:
        """Turn readiness off and wait for what is in flight."""
        self._stopping = True
        if self._answering is not None:
            await self._answering.close()
        await asyncio.gather(*self._leaving)
        if self._cache is not None:
            await self._cache.close()
        self._thread.shutdown(wait=False)
