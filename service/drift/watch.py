"""The watch over the traffic of one release: what requests leave behind is looked at every second, beside them."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prometheus_client import CollectorRegistry

from taugate.retrieval.documents.store import Document
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.look import Look
from taugate.service.drift.query_log import Judged, Seen
from taugate.service.drift.shown import Judgeable, Shown, is_id
from taugate.service.errors import Invalid, NotFound
from taugate.service.metrics import SHARED_FOLDER
from taugate.service.pipeline.engine import Engine
from taugate.service.pipeline.reply import Reply
from taugate.service.runtime.resources import for_search, give_way
from taugate.service.settings import Settings

_SHOWN = 8  # ids that a message lists


class Judging:
    """shown: what replies showed; documents: of the release; seconds: how long a reply can be judged."""

    def __init__(self, shown: Shown, documents: Sequence[Document], fleet: Fleet | None, seconds: float) -> None:
        self._shown, self._documents, self._fleet, self._seconds = shown, documents, fleet, seconds
        self._judged: list[Judged] = []

    async def judge(self, query_id: str, document_id: str, *, relevant: bool) -> bool:
        """Whether the judgement is a new one.

        Of several documents of one reply the first that is judged relevant counts: S_corr has one for a query. Raises
        NotFound for a reply that is not known, Invalid for a document that it did not show.
        """
        reply = await asyncio.to_thread(self._shown.find, query_id, time.monotonic())
        if reply is None:
            reply = await self._of_another_replica(query_id)
        shown = {self._documents[position].id: at for at, position in enumerate(reply.positions.tolist())}
        if document_id not in shown:
            listed = ", ".join([*shown][:_SHOWN])
            raise Invalid(f"document_id: the reply did not show it; it showed {listed or 'nothing'}")
        place = shown[document_id]
        if not await asyncio.to_thread(self._is_first, query_id, int(reply.positions[place]), relevant):
            return False
        if relevant:
            self._judged.append(Judged(time.time(), query_id, document_id, float(reply.scores[place])))
        return True

    def unknown(self) -> NotFound:
        """What is said of a reply that is not known, and of one to a key that may see other documents."""
        return NotFound(
            f"query_id: no reply of the last {self._seconds:g} s (TAUGATE_FEEDBACK_SECONDS) by the release in service "
            "has this id"
        )

    def taken(self) -> list[Judged]:
        """Those that came since this was asked last."""
        taken, self._judged = self._judged, []
        return taken

    async def _of_another_replica(self, query_id: str) -> Judgeable:
        """What it showed, which is kept here from now on, with how it is judged. Raises NotFound."""
        if self._fleet is None or not is_id(query_id):
            raise self.unknown()
        packed = await asyncio.to_thread(self._fleet.find, query_id, time.time())
        if packed is None:
            raise self.unknown()
        try:
            reply = Judgeable.read(packed, len(self._documents))
        except ValueError as error:  # others can write to Redis as well
            raise self.unknown() from error
        self._shown.add(query_id, time.monotonic(), packed)
        return reply

    def _is_first(self, query_id: str, position: int, relevant: bool) -> bool:
        if not self._shown.is_first(query_id, position, time.monotonic(), relevant=relevant):
            return False
        judgement = f"{query_id}:{'' if relevant else position}"
        return self._fleet is None or self._fleet.is_first(judgement)


_log = logging.getLogger("taugate.drift")
_LOOK_SECONDS = 1.0
# Queries between two looks, far more than any process answers in a second, and characters of them: 40 MB together, or
# 64 MB where all are of the characters that take the most.
_MOST_SEEN, _MOST_CHARACTERS = 100_000, 16 << 20


class Watch:
    """Of one event loop, less what it does in a thread of its own."""

    def __init__(self, engine: Engine, settings: Settings, registry: CollectorRegistry) -> None:
        release_id, url = engine.release.manifest.release_id, settings.cache.redis_url
        seconds = settings.drift.feedback_seconds
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
