"""The watch over the traffic of one release: what requests leave behind is looked at every second, beside them."""

import asyncio
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prometheus_client import CollectorRegistry

from taugate.service.drift.fleet import Fleet
from taugate.service.drift.judging import Judging
from taugate.service.drift.look import Look
from taugate.service.drift.seen import Seen
from taugate.service.drift.shown import Shown
from taugate.service.metrics import SHARED_FOLDER
from taugate.service.pipeline.engine import Engine
from taugate.service.pipeline.reply import Reply
from taugate.service.runtime.threads import for_search, give_way
from taugate.service.settings import Settings

_log = logging.getLogger("taugate.drift")
_LOOK_SECONDS = 1.0
# Queries between two looks, far more than any process answers in a second, and characters of them: 40 MB together, or
# 64 MB where all are of the characters that take the most.
_MOST_SEEN, _MOST_CHARACTERS = 100_000, 16 << 20


class Watch:
    """Of one event loop, less what it does in a thread of its own."""

    def __init__(self, engine: Engine, settings: Settings, registry: CollectorRegistry) -> None:
        release_id, url = engine.release.manifest.release_id, settings.redis_url
        seconds = settings.feedback_seconds
        self._fleet = None if url is None else Fleet(url.get_secret_value(), release_id, seconds)
        self._look = Look(engine, settings, registry, self._fleet)
        self._thread = ThreadPoolExecutor(1, "taugate-drift", _prepare)
        folder = os.environ.get(SHARED_FOLDER)
        results = engine.release.manifest.policy.k
        self._shown = Shown(Path(folder) if folder else None, release_id, results, seconds)
        self.judging = Judging(self._shown, engine.release.documents, self._fleet, seconds)
        self._seen: list[Seen] = []
        self._characters = self._lost = 0
        self._task = asyncio.create_task(self._run())

    def seen(self, query_id: str, text: str, reply: Reply) -> None:
        """A reply goes out; from a cache or not, it counts whenever a user sees it."""
        self._shown.add(query_id, time.monotonic(), reply.shown)
        if len(self._seen) < _MOST_SEEN and self._characters < _MOST_CHARACTERS:
            self._characters += len(text)
            self._seen.append(Seen(time.time(), query_id, text, reply.observed, reply.shown))
        else:
            self._lost += 1

    @property
    def verdict(self) -> bytes:
        """What replies say of drift, as JSON."""
        return self._look.verdict.reply

    async def close(self, *, forget: bool = False) -> None:
        """Stop looking, and take the metrics back; forget: the release has left, and its alarms with it."""
        if self._task.cancel():  # not the second time
            seen, judged = self._taken(), self.judging.taken()
            await asyncio.get_running_loop().run_in_executor(self._thread, self._look.look, seen, judged)
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._look.close, forget=forget)  # which may have to wait for Redis
        self._shown.close(forget=forget)
        if self._fleet is not None:
            self._fleet.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await loop.run_in_executor(self._thread, self._look.look, self._taken(), self.judging.taken())
            except Exception:  # noqa: BLE001 (whatever it is, requests are answered, and the next look is taken)
                _log.exception("the traffic could not be looked at")

    def _taken(self) -> list[Seen]:
        taken, self._seen = self._seen, []
        self._look.lost(self._lost)
        self._characters = self._lost = 0
        return taken


def _prepare() -> None:
    """Of the thread: whoever waits for an answer goes before it."""
    for_search(1)
    give_way()
