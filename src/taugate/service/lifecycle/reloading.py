"""Reloads the current release at SIGHUP, at POST /admin/reload, and periodically if an interval is set."""

import asyncio
import contextlib
import logging
import os
import random
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from taugate.errors import ReleaseError
from taugate.service.errors import ApiError, EncoderAway, EngineAway, NotReady
from taugate.service.lifecycle.serving import ReloadResponse, Serving
from taugate.service.metrics import SHARED_FOLDER

_log = logging.getLogger(__name__)
_JITTER = 0.2  # share of the interval, so that replicas do not all load at the same moment


class Reloading:
    """Reloads the active release and the API keys. Belongs to one event loop."""

    def __init__(self, serving: Serving, read_keys: Callable[[], object], seconds: float) -> None:
        """Prepare to check the current release every so many seconds, 0 for never.

        `read_keys` reads the API keys again; it is called at each reload except the periodic ones.
        """
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
        with contextlib.suppress(ApiError):
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
