"""The release in service: loaded beside the event loop, announced when it is ready, let go at the end."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from retrieval.errors import InputError
from retrieval.release.catalog import find
from retrieval.release.reader import Release
from service.admission import Admission
from service.answering import Answering
from service.cache.cache import Cache, open_cache
from service.drift.watch import Watch
from service.engine import Engine, Threads
from service.errors import NotReady
from service.loading import Load, trusting
from service.metrics import Metrics
from service.settings import Settings

_log = logging.getLogger("taugate.serving")


class Serving:
    """State of one process: loading, ready, failed or stopping.

    failure: why no release could be loaded, which ends the process; on_failure: called then; on_ready: called when one
    could.
    """

    def __init__(self, settings: Settings, metrics: Metrics, load_release: Load | None = None) -> None:
        self._settings = settings
        self._metrics = metrics
        self._load = load_release or trusting(settings)
        self._threads = Threads(settings.encoder_threads, settings.search_threads)
        self.admission = Admission(settings.queue_limit, settings.deadline_ms / 1000, metrics.queue_depth.set)
        self._cache: Cache | None = None
        self._answering: Answering | None = None
        self._stopping = False
        self.loaded_at: datetime | None = None
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
            self._cache = open_cache(self._settings, self._metrics)
            self._begin(await asyncio.to_thread(self._open), self._cache)
        except Exception as error:  # noqa: BLE001 (whatever it is ends the process, where serve() raises it again)
            self.failure = error
            self.on_failure()

    def _begin(self, release: Release, cache: Cache) -> None:
        metrics = self._metrics
        self.loaded_at = datetime.now(UTC)
        metrics.announce(release.manifest, self.loaded_at.timestamp())
        engine = Engine(release, self._threads, metrics.observe_stage, metrics.observe_batch)
        watch = Watch(engine, self._settings, metrics.registry) if self._settings.drift else None
        self._answering = Answering(engine, cache, metrics, watch)
        self.on_ready()
        _log.info("ready", extra={"fields": {"release": release.manifest.release_id, "precision": release.precision}})

    def _open(self) -> Release:
        settings = self._settings
        release = self._load(find(settings.directory), self._threads.encoder, settings.precision)
        k = release.manifest.policy.k
        if k > self._settings.max_k:
            raise InputError(f"TAUGATE_MAX_K {self._settings.max_k}: the release was calibrated at K = {k}; raise it")
        return release

    async def stop(self) -> None:
        """Turn readiness off and wait for what is in flight."""
        self._stopping = True
        if self._answering is not None:
            await asyncio.to_thread(self._answering.engine.close)
            if self._answering.watch is not None:
                await self._answering.watch.close()
        if self._cache is not None:
            await self._cache.close()
