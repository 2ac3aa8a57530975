"""Watches the traffic of one release: collects data on every reply, and analyzes it in a thread beside the requests."""

import asyncio
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from taugate.drift.new_questions import QuestionGroup
from taugate.drift.overlap import LiveOverlap
from taugate.retrieval.query import Query
from taugate.service.drift import feedback
from taugate.service.drift.analysis import TrafficAnalysis
from taugate.service.drift.canary import Canary
from taugate.service.drift.feedback import Feedback
from taugate.service.drift.query_log import ServedReply
from taugate.service.drift.watched import WatchedRelease
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.metrics import SHARED_FOLDER
from taugate.service.pipeline.record import SearchRecord
from taugate.service.runtime.resources import search_in_background
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads redis-py, which a service without Redis does not need
    from taugate.service.drift.fleet import Fleet

_log = logging.getLogger(__name__)
# Queries in an interval, far more than any process answers in a second, and their characters: 40 MB together, or
# 64 MB if all characters take four bytes; most of their records are in the cache as well.
_MAX_QUERIES, _MAX_CHARACTERS = 100_000, 16 << 20


class DriftWatch:
    """Watches the traffic of one release. Belongs to one event loop; the analysis has a thread of low priority."""

    def __init__(
        self, release: WatchedRelease, canary: Canary | None, settings: Settings, registry: CollectorRegistry
    ) -> None:
        """Start watching; `registry` is for the drift metrics. See TrafficAnalysis for `canary`."""
        release_id, url = release.manifest.release_id, settings.cache.redis_url
        seconds = settings.drift.feedback_seconds
        folder = os.environ.get(SHARED_FOLDER)
        workers = WorkerStore(Path(folder) if folder else None, release_id, seconds)
        fleet = None if url is None else _fleet(url.get_secret_value(), release_id, seconds)
        self._analysis = TrafficAnalysis(release, canary, settings, registry, workers, fleet)
        self._thread = ThreadPoolExecutor(1, "taugate-drift", search_in_background)
        self.feedback = Feedback(workers, fleet, release, seconds, self._analyze)
        self._served: list[ServedReply] = []
        self._characters = self._lost = 0
        self._task = asyncio.create_task(self._run())

    def observe(self, query_id: str, query: Query, record: SearchRecord, key: str | None) -> None:
        """Take a reply that is being sent, cached or not: drift counts what users see. See ServedReply."""
        if len(self._served) < _MAX_QUERIES and self._characters < _MAX_CHARACTERS:
            self._characters += len(query.text) + len(query.vector or b"") + sum(map(len, record.ids or ()))
            self._served.append(ServedReply(time.time(), query_id, query, key, record))
        else:
            self._lost += 1

    @property
    def report(self) -> bytes:
        """The field `drift` of replies, as JSON."""
        return self._analysis.alarms.report

    @property
    def new_questions(self) -> list[QuestionGroup] | None:
        """The questions under the latest alarm of this process, grouped; None if it may keep no texts."""
        return None if self._analysis.questions is None else self._analysis.questions.groups

    @property
    def overlap(self) -> LiveOverlap:
        """COE and ROE of this process's latest queries and judgements, some seconds old."""
        return self._analysis.live.overlap

    async def close(self, *, forget: bool = False) -> None:
        """Analyze the remaining traffic and reset the metrics.

        Of a release that has left, `forget` also deletes the alarms' shared state. The feedback of its successor still
        takes judgements of its replies.
        """
        if self._task.cancel():  # false at a second call
            await self._analyze()
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._analysis.close, forget=forget)  # may have to wait for Redis
        if not forget:
            await asyncio.to_thread(self.feedback.close)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(feedback.STORE_SECONDS)
            await self._analyze()

    async def _analyze(self) -> None:
        served, self._served = self._served, []
        judged, lost = self.feedback.take(), self._lost
        self._characters = self._lost = 0
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._analysis.analyze, served, judged, lost)
        except Exception:  # noqa: BLE001 (requests must not be affected; the next interval is analyzed)
            _log.exception("drift analysis failed")
        for expired in self.feedback.drop_expired():
            await asyncio.to_thread(expired.close)


def _fleet(url: str, release: str, seconds: float) -> "Fleet":
    from taugate.service.drift.fleet import Fleet

    return Fleet(url, release, seconds)
