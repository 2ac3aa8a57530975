"""From a releases directory to an engine that has shown that it answers: all that is slow, off the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from taugate.errors import InputError
from taugate.registry.catalog import shadow_id
from taugate.registry.lock import hold
from taugate.retrieval.release import golden
from taugate.retrieval.release.reader import Release
from taugate.service.lifecycle.loading import Load, current_release, promoted_id, trusting
from taugate.service.metrics import Metrics
from taugate.service.pipeline.engine import Engine, Threads
from taugate.service.runtime.threads import give_way
from taugate.service.settings import Settings

Result = TypeVar("Result")


class Opener:
    """Opens releases with the settings of the service, one at a time; whoever is answered meanwhile goes first.

    load_release: in place of retrieval.release.reader.load. Everything raises ReleaseError or EncoderError when a
    release is not as it was written, InputError when the settings do not fit it.
    """

    def __init__(self, settings: Settings, metrics: Metrics, load_release: Load | None = None) -> None:
        self._settings, self._metrics, self._load = settings, metrics, load_release or trusting(settings)
        self._threads = Threads(settings.encoder_threads, settings.search_threads)
        self._thread = ThreadPoolExecutor(1, "taugate-load", give_way)

    async def current(self, *, at_start: bool = False) -> Path:
        """The release that is to be in service, as service.loading.current_release has it."""
        return await self._run(lambda: current_release(self._settings, at_start=at_start))

    async def shadow(self) -> Path | None:
        """The one that is to be tried beside it."""
        name = await self._run(lambda: shadow_id(self._settings.directory))
        return None if name is None else self._settings.directory / name

    async def pointers(self) -> tuple[str | None, str | None]:
        """Ids of both."""
        return await self._run(lambda: (promoted_id(self._settings), shadow_id(self._settings.directory)))

    async def load(self, release: Path, threads: int) -> Release:
        """Verified, loaded, and asked its golden queries; not to be pruned until it is closed."""
        return await self._run(lambda: self._held(release, threads))

    async def open(self, release: Path) -> Engine:
        """The same, and an engine for it whose every encoder was asked, and so is warm."""
        loaded = await self.load(release, self._threads.encoder)
        try:
            return await self._run(lambda: self._engine(loaded))
        except BaseException:
            await self._run(loaded.close)
            raise

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False)

    def _held(self, release: Path, threads: int) -> Release:
        held = hold(release)
        try:
            loaded = self._load(release, threads, self._settings.precision)
            return replace(loaded, holds=(held, *loaded.holds))
        except BaseException:
            held.close()
            raise

    def _engine(self, release: Release) -> Engine:
        settings, manifest = self._settings, release.manifest
        if manifest.policy.k > settings.max_k:
            k = manifest.policy.k
            raise InputError(f"TAUGATE_MAX_K {settings.max_k}: the release was calibrated at K = {k}; raise it")
        engine = Engine(release, self._threads, self._metrics.observe_stage, self._metrics.observe_batch)
        try:
            if engine.single is not release.retriever:  # which `load` has asked
                golden.check(engine.single, release.golden, manifest.golden_tolerance)
        except BaseException:
            engine.close()
            raise
        return engine

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
