"""Which release is loaded, and how: as the settings say where it is and whom to trust."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from taugate.errors import InputError, ReleaseError, TaugateError
from taugate.registry.catalog import current_id, find, shadow_id
from taugate.registry.lock import hold
from taugate.registry.remote.copy import bring, current_of
from taugate.registry.remote.private import PRIVATE, copied, entered
from taugate.retrieval.release import golden
from taugate.retrieval.release.layout import CURRENT
from taugate.retrieval.release.reader import AskedPrecision, Release, load
from taugate.retrieval.release.signature import TrustedKeys
from taugate.service.metrics import Metrics
from taugate.service.pipeline.engine import Engine, Threads
from taugate.service.runtime.resources import give_way
from taugate.service.settings import Settings
from taugate.storage.object_store import Store

# Opens a release folder, with a number of encoder threads and an encoder of a precision.
Load = Callable[[Path, int, AskedPrecision], Release]
_log = logging.getLogger("taugate.loading")


def current_release(settings: Settings, *, at_start: bool = False) -> Path:
    """Folder of the current release; where releases are at a URL, the copy of it is brought up to date.

    at_start: also looks for damage in the copy, and makes do with it as it is where the store does not answer or holds
    what does not verify: another release than the newest is better than none. Raises ReleaseError or InputError.
    """
    directory = settings.releases.directory
    if isinstance(settings.releases.location, str):
        try:
            bring(settings.releases.location, directory, trusted_keys(settings), mend=at_start)
        except ReleaseError as error:
            if not at_start or not (directory / CURRENT).is_file():
                raise
            _log.warning("the copy of the releases is used as it is", extra={"fields": {"reason": str(error)}})
    return find(directory)


def promoted_id(settings: Settings) -> str | None:
    """Id of the release that was promoted last, which may not have been copied yet. Raises as `current_release`."""
    if isinstance(settings.releases.location, str):
        return current_of(Store(settings.releases.location))
    return current_id(settings.releases.directory)


def trusting(settings: Settings) -> Load:
    """`load`, but for releases that nobody trusted has signed. The keys are read each time: they may have changed.

    Where keys are trusted, a release is opened in a folder that only this user can write to.
    """

    def load_trusted(release: Path, threads: int, precision: AskedPrecision) -> Release:
        trusted = trusted_keys(settings)
        if trusted is None:
            return load(release, threads, precision)
        own = (
            entered(release)
            if isinstance(settings.releases.location, str)
            else copied(release, settings.releases.copies / PRIVATE, trusted)
        )
        try:
            return replace(load(own.release, threads, precision, trusted), holds=(own,))
        except BaseException as error:
            own.close()
            if isinstance(error, TaugateError):  # which is to name the release, not the copy
                raise type(error)(str(error).replace(str(own.release), str(release))) from error
            raise

    return load_trusted


def trusted_keys(settings: Settings) -> TrustedKeys | None:
    """Raises InputError where the setting names none."""
    return None if settings.releases.trusted_keys is None else TrustedKeys.load(settings.releases.trusted_keys)


Result = TypeVar("Result")


class Opener:
    """Opens releases with the settings of the service, one at a time; whoever is answered meanwhile goes first.

    load_release: in place of retrieval.release.reader.load. Everything raises ReleaseError or EncoderError when a
    release is not as it was written, InputError when the settings do not fit it.
    """

    def __init__(self, settings: Settings, metrics: Metrics, load_release: Load | None = None) -> None:
        self._settings, self._metrics, self._load = settings, metrics, load_release or trusting(settings)
        self._threads = Threads(settings.compute.encoder_threads, settings.compute.search_threads)
        self._thread = ThreadPoolExecutor(1, "taugate-load", give_way)

    async def current(self, *, at_start: bool = False) -> Path:
        """The release that is to be in service, as service.loading.current_release has it."""
        return await self._run(lambda: current_release(self._settings, at_start=at_start))

    async def shadow(self) -> Path | None:
        """The one that is to be tried beside it."""
        name = await self._run(lambda: shadow_id(self._settings.releases.directory))
        return None if name is None else self._settings.releases.directory / name

    async def pointers(self) -> tuple[str | None, str | None]:
        """Ids of both."""
        return await self._run(lambda: (promoted_id(self._settings), shadow_id(self._settings.releases.directory)))

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
            loaded = self._load(release, threads, self._settings.compute.precision)
            return replace(loaded, holds=(held, *loaded.holds))
        except BaseException:
            held.close()
            raise

    def _engine(self, release: Release) -> Engine:
        settings, manifest = self._settings, release.manifest
        if manifest.policy.k > settings.requests.max_k:
            k = manifest.policy.k
            raise InputError(
                f"TAUGATE_MAX_K {settings.requests.max_k}: the release was calibrated at K = {k}; raise it"
            )
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
