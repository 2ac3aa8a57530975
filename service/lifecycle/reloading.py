"""When the service looks for another current release: SIGHUP, POST /admin/reload, and every so often where asked to."""

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
from taugate.service.errors import ApiError, NotReady
from taugate.service.lifecycle.serving import Serving, Turn
from taugate.service.metrics import SHARED_FOLDER

_log = logging.getLogger("taugate.reloading")
_JITTER = 0.2  # of the time between two looks, so that replicas do not all load at the same moment


class Reloading:
    """Of one event loop.

    read_keys: is called when the service is told to look; seconds: between two looks at which release is current, 0 for
    none.
    """

    def __init__(self, serving: Serving, read_keys: Callable[[], object], seconds: float) -> None:
        self._serving, self._read_keys, self._seconds = serving, read_keys, seconds
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen for SIGHUP, where this process has signals of its own, and begin to look."""
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._told)
        if self._seconds:
            self._begin(self._follow())

    async def stop(self) -> None:
        """Neither listen nor look any longer."""
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reload(self) -> Turn:
        """As Serving.reload, in the other workers of this service as well, which say in the log how it went."""
        self._read_keys()
        turn = await self._serving.reload()
        if SHARED_FOLDER in os.environ:
            os.kill(os.getppid(), signal.SIGHUP)
        return turn

    def _told(self) -> None:
        self._read_keys()
        self._begin(self._quietly())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self) -> None:
        """What goes wrong is in the log and in the metrics."""
        with contextlib.suppress(ApiError):
            await self._serving.reload()

    async def _follow(self) -> None:
        said = None
        while True:
            await asyncio.sleep(self._seconds * random.uniform(1 - _JITTER, 1 + _JITTER))  # noqa: S311 (no secret)
            try:
                if await self._serving.is_behind():
                    await self._quietly()
                said = None
            except NotReady:
                continue
            except (ReleaseError, OSError) as error:
                if str(error) != said:
                    said = str(error)
                    _log.error("which release is current cannot be read", extra={"fields": {"reason": said}})
