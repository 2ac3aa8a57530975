"""Loads the current release in a thread, swaps it in atomically, and closes the previous one; reloads it on request."""

import asyncio
import logging
import os
import random
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from taugate.errors import EncoderUnavailable, EngineUnavailable, InputError, ReleaseError, TaugateError
from taugate.service.access.admission import Admission
from taugate.service.access.authorization import Authorizer
from taugate.service.drift.analysis import Canary
from taugate.service.drift.watch import DriftWatch
from taugate.service.errors import ApiError, EncoderAway, EngineAway, NotReady, ReloadFailed
from taugate.service.lifecycle.active import ActiveRelease, Ending, Failed, Loading, Ready, State, Waiting
from taugate.service.lifecycle.loading import Load, ReleaseLoader, log_failure, may_pass
from taugate.service.lifecycle.shadow import Shadowing
from taugate.service.metrics import SHARED_FOLDER, Metrics
from taugate.service.pipeline.reply import CachedSearch, TieredCache
from taugate.service.runtime.resources import check_memory, release_memory
from taugate.service.settings import Settings

_log = logging.getLogger(__name__)
_JITTER = 0.2  # share of the interval between checks, so that replicas do not all load at the same moment
_RETRY_SECONDS = 2.0  # between two attempts to load a release whose engine or encoder is not responding


class ReloadResponse(BaseModel):
    """The release in service and the previous one. `unchanged` means that the current release was already in service.

    `shadow` is the id of the shadow release.
    """

    status: Literal["loaded", "unchanged"]
    release: str
    previous: str
    shadow: str | None


class Serving:
    """What one process serves, and its state. Belongs to one event loop."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        access: Authorizer,
        admission: Admission,
        load_release: Load | None = None,
    ) -> None:
        """Prepare to serve, without loading a release, which must have the fields that filters of keys name."""
        # See ReleaseLoader for `load_release`.
        self._settings, self._metrics, self.access = settings, metrics, access
        self._loader = ReleaseLoader(settings, metrics, load_release)
        self.shadowing = Shadowing(self._loader, metrics, settings.lifecycle.shadow_share)
        self._loading = asyncio.Lock()
        self._admission = admission
        self._cache = TieredCache(settings, metrics)
        self._state: State = Loading()
        self._closing: set[asyncio.Task[None]] = set()
        self._gave_up, self.attempted = asyncio.Event(), asyncio.Event()
        self.refused: str | None = None  # id of the release that could not replace the active one
        self._waits_for: str | None = None  # as the log has said
        self.on_ready: Callable[[], None] = lambda: None  # called when the first release is active
        self.on_failure: Callable[[], None] = lambda: None  # called when no release could be loaded

    @property
    def active(self) -> ActiveRelease:
        """The active release."""
        return self._state.active()

    @property
    def has_release(self) -> bool:
        """Whether a release has become active; stays true while the service stops."""
        return self._state.release is not None

    @property
    def failure(self) -> Exception | None:
        """Why no release could be loaded, which ends the process; None if one could be, or may still be."""
        return self._state.error

    @property
    def ready(self) -> ActiveRelease:
        """The active release, if it can answer and the service is not about to stop."""
        active = self._state.ready()
        if active.pipeline is not None and active.pipeline.release.engine is not None:
            active.pipeline.release.engine.check()
        return active

    async def is_behind(self) -> bool:
        """Return whether there is a new current release or shadow that was not refused yet."""
        async with self._loading:  # a release that is being loaded is neither active nor refused yet
            current, shadow = await self._loader.pointers()
        active = self.active.release_id
        handled = self.refused or active  # after a refusal, a pointer back to the active release is new as well
        return current not in {None, handled} or self.shadowing.is_behind(shadow, active)

    async def start(self) -> None:
        """Load the current release in a thread, so that /livez works meanwhile; wait while its engine is down."""
        try:
            while not (self._gave_up.is_set() or await self._started()):
                self.attempted.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._gave_up.wait(), _RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001 (every error ends the process; serve() raises it again)
            self._state = self._state.then(Failed(error))
            self.on_failure()
        self.attempted.set()

    async def _started(self) -> bool:
        """Load and activate the current release; False if its engine or its encoder is not responding."""
        try:
            async with self._loading:
                active = await self._activate(await self._loader.current(at_start=True))
                self.on_ready()
                await self.shadowing.renew(active.pipeline)
        except EngineUnavailable as error:
            self._loader.engine.mark_unreachable()
            self._wait_for("engine", EngineAway, error)
            return False
        except EncoderUnavailable as error:
            if error.lasting:
                raise
            self._wait_for("encoder", EncoderAway, error)
            return False
        return True

    def _wait_for(self, name: str, away: type[EngineAway | EncoderAway], error: TaugateError) -> None:
        if self._waits_for is not name:
            _log.warning("cannot load the release yet: no %s", name, extra={"fields": {"reason": str(error)}})
        self._waits_for, self._state = name, self._state.then(Waiting(away))

    def give_up(self) -> None:
        """Stop waiting for an engine or an encoder that keeps the first release from being loaded."""
        self._gave_up.set()

    async def reload(self) -> ReloadResponse:
        """Replace the active release by the current one if they differ."""
        # The previous release keeps serving while the new one is loaded, and is closed after its last reply.
        async with self._loading:
            previous = self.active.release_id
            try:
                active = await self._replace(self.active)
            except NotReady:
                raise
            except Exception as error:
                self._metrics.observe_reload("failed")
                if may_pass(error):
                    self.refused = None
                message = "cannot load the current release; keeping the previous one"
                reason = log_failure(message, error, release=previous)
                raise ReloadFailed(f"{previous} remains in service: {reason}") from error
            self.refused = None
            await self.shadowing.renew(active.pipeline)
            status: Literal["loaded", "unchanged"] = "unchanged" if active.release_id == previous else "loaded"
            self._metrics.observe_reload(status)
            return ReloadResponse(
                status=status, release=active.release_id, previous=previous, shadow=self.shadowing.release_id
            )

    async def _replace(self, old: ActiveRelease) -> ActiveRelease:
        """Activate the current release, and close the old one after its last reply; returns the active one."""
        folder = await self._loader.current()
        if folder.name == old.release_id:
            return old
        self.refused = folder.name  # cleared by `reload` if the release becomes active
        active = await self._activate(folder)
        if active.drift is not None and old.drift is not None:
            active.drift.feedback.succeed(old.drift.feedback)
        closing = asyncio.create_task(self._close_drained(old))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return active

    async def _activate(self, folder: Path) -> ActiveRelease:
        """Load a release from its folder, and make it the active one."""
        warning = await asyncio.to_thread(check_memory, folder)
        opened = await self._loader.open(folder)
        release, pipeline = opened.release, opened.pipeline
        try:
            if self._state.stopped:
                raise NotReady("the service is shutting down")
            self.access.serve(release.fields)
        except (NotReady, InputError):
            await asyncio.to_thread(opened.close)
            raise
        # Nothing is awaited from here on, so that no request comes in between.
        metrics, search, canary, drift = self._metrics, None, None, None
        kind: dict[str, str] = {}
        if pipeline is not None:
            search = CachedSearch(pipeline, self._cache, self._admission, metrics)
            canary = Canary(pipeline.release, pipeline.single_threaded)
            kind = {"precision": pipeline.release.precision}
        if opened.gate is not None:
            kind = {"retriever": opened.gate.manifest.retriever.name}
        if self._settings.drift.enabled:
            drift = DriftWatch(release, canary, self._settings, metrics.new_release_registry())
        active = ActiveRelease(opened, drift, search, warning)
        metrics.set_release(release.manifest, active.loaded_at.timestamp())
        self._state = self._state.then(Ready(active))
        _log.info("ready", extra={"fields": {"release": active.release_id, **kind}})
        return active

    async def _close_drained(self, old: ActiveRelease) -> None:
        """Close a replaced release after its last reply."""
        await old.in_flight.drained()
        await old.close(replaced=True)
        _log.info("previous release closed", extra={"fields": {"release": old.release_id}})
        del old  # so that its memory can be released
        await asyncio.to_thread(release_memory)

    def announce_end(self) -> None:
        """Fail the readiness probe from now on, and continue to serve."""
        self._state = Ending(self._state, stopped=self._state.stopped)

    async def stop(self) -> None:
        """Fail the readiness probe, wait for requests in flight, and close everything."""
        self._state = Ending(self._state, stopped=True)
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._state.release is not None:
            await self._state.release.close()
        await self.shadowing.close()
        await self._cache.close()
        self._loader.close()


class Reloading:
    """Reloads the active release and the API keys. Belongs to one event loop."""

    def __init__(self, serving: Serving, read_keys: Callable[[], object], seconds: float) -> None:
        """Prepare to check the current release every so many seconds, 0 for never."""
        # `read_keys` reads the API keys again; it is called at each reload except the periodic ones.
        self._serving, self._read_keys, self._seconds = serving, read_keys, seconds
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen for SIGHUP, if this is the main thread, and start the periodic checks."""
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_signal)
        if self._seconds:
            self._start_task(self._poll())

    async def stop(self) -> None:
        """Stop listening and checking."""
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reload(self) -> ReloadResponse:
        """Reload as Serving.reload does, and signal the other workers of this service, which log their outcome."""
        self._read_keys()
        result = await self._serving.reload()
        if SHARED_FOLDER in os.environ:
            os.kill(os.getppid(), signal.SIGHUP)
        return result

    def _on_signal(self) -> None:
        self._read_keys()
        self._start_task(self._reload_quietly())

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload_quietly(self) -> None:
        """Reload; errors are already in the log and in the metrics."""
        with suppress(ApiError):
            await self._serving.reload()

    async def _poll(self) -> None:
        reported = None
        while True:
            await asyncio.sleep(self._seconds * random.uniform(1 - _JITTER, 1 + _JITTER))  # noqa: S311 (no secret)
            try:
                if await self._serving.is_behind():
                    await self._reload_quietly()
                reported = None
            except (NotReady, EncoderAway, EngineAway):
                continue
            except (ReleaseError, OSError) as error:
                if str(error) != reported:
                    reported = str(error)
                    _log.error("cannot read the current-release pointer", extra={"fields": {"reason": reported}})
