"""Watches the traffic of one release: data on every reply, judgements of results, and their analysis in a thread."""

import asyncio
import logging
import math
import os
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import CollectorRegistry

from taugate.drift.new_questions import QuestionGroup
from taugate.drift.query_log import LoggedJudgement
from taugate.drift.signals import LiveOverlap
from taugate.retrieval.query import Query
from taugate.service.drift.analysis import Canary, TrafficAnalysis
from taugate.service.drift.query_log import Judged, ServedReply, WatchedRelease
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.errors import Invalid, NotFound
from taugate.service.metrics import SHARED_FOLDER
from taugate.service.pipeline.record import MAX_NUMBER, Results, SearchRecord, ShownReply, id_number
from taugate.service.runtime.resources import search_in_background
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads redis-py, which a service without Redis does not need
    from taugate.service.replicas import Fleet

_log = logging.getLogger(__name__)

STORE_SECONDS = 1.0  # between two moments at which a process stores its replies
_ID = re.compile(r"[0-9a-f]{32}")
_MAX_LISTED_IDS = 8  # in a message
_MAX_EARLIER = 8  # releases whose replies can still be judged; each takes some 50 MB, and a connection to Redis
_NOT_SHOWN = "the reply did not show it; it showed"
_NOT_IN_SEARCH = "a search for this query does not show it; it shows"
# Queries in an interval, far more than any process answers in a second, and their characters: 40 MB together, or
# 64 MB if all characters take four bytes; most of their records are in the cache as well.
_MAX_QUERIES, _MAX_CHARACTERS = 100_000, 16 << 20


class Feedback:
    """Judgements of one release's replies. Belongs to one event loop."""

    def __init__(
        self,
        workers: WorkerStore,
        fleet: "Fleet | None",
        release: WatchedRelease,
        seconds: float,
        store_replies: Callable[[], Awaitable[None]],
    ) -> None:
        """Take judgements of a release's replies."""
        self._stores: list[WorkerStore | Fleet] = [workers] if fleet is None else [workers, fleet]
        self._are_others = workers.shared or fleet is not None
        self._documents, self._manifest, self._seconds = release.documents, release.manifest, seconds
        self._store_replies = store_replies
        self._judged: list[Judged] = []
        self._earlier: list[Feedback] = []  # of the releases before, the latest first
        self._active, self._ends = self, math.inf

    def succeed(self, replaced: "Feedback") -> None:
        """Also take judgements of replies by the release before, and by those before it, while they can be judged."""
        replaced._ends = time.monotonic() + self._seconds
        self._earlier, replaced._earlier = [replaced, *replaced._earlier], []
        for number, earlier in enumerate(self._earlier):
            # The function of the release before would keep that closed release in memory.
            earlier._active, earlier._store_replies = self, self._store_replies
            if number >= _MAX_EARLIER:
                earlier._ends = 0.0

    def drop_expired(self) -> "list[Feedback]":
        """Return those of earlier releases whose replies can no longer be judged, to be closed."""
        now = time.monotonic()
        expired = [earlier for earlier in self._earlier if earlier._ends <= now]
        self._earlier = [earlier for earlier in self._earlier if earlier._ends > now]
        return expired

    def close(self) -> None:
        """Close the stores, also those of earlier releases; may wait for Redis."""
        for store in chain(self._stores, self._earlier):
            store.close()

    async def find(self, query_id: str) -> tuple["Feedback", ShownReply]:
        """Return what a reply showed, and what takes judgements of it."""
        # A reply that was just sent is waited for until it is stored.
        if _ID.fullmatch(query_id) is None:  # nor are other texts of clients sent to Redis
            raise self.unknown()
        found = await asyncio.to_thread(self._look_up, query_id)
        if found is None:
            await self._store_replies()
            found = await asyncio.to_thread(self._look_up, query_id)
        if found is None and (self._are_others or self._earlier):  # one that was just replaced stores its last replies
            await asyncio.sleep(STORE_SECONDS)
            found = await asyncio.to_thread(self._look_up, query_id)
        if found is None:
            raise self.unknown()
        return found

    async def judge(
        self,
        query_id: str,
        shown: ShownReply,
        document_id: str,
        *,
        relevant: bool,
        key: str | None = None,
        query: str | None = None,
    ) -> bool:
        """Take a judgement of a reply, or of what a search shows now; returns whether it is new."""
        # Every new judgement is logged with the release of its reply. Drift takes none of replies by an
        # earlier release, nor of those that are not comparable with the calibration. Of the others, S_corr
        # has the first document that is judged relevant, because it has one similarity per query. A `document_id`
        # stands for the best passage of the document in the reply. The `query_id` of a search is the same for the
        # same key and `query`, so that a judgement counts once among all workers and replicas.
        results = shown.results
        row, passage_id = await self._row_of(results, document_id, _NOT_SHOWN if query is None else _NOT_IN_SEARCH)
        judgement = f"{query_id}:{int(results['position'][row])}{'+' if relevant else ''}"
        is_new = await asyncio.to_thread(self._is_first, judgement)
        if is_new:
            kept, of = bool(results["kept"][row]), int(results["kept"].sum())
            counts = decides = False
            if shown.not_comparable is None and self._active is self:
                counts, decides = await asyncio.to_thread(self._counts, query_id, of if kept else 0, relevant=relevant)
            line = LoggedJudgement(
                at=time.time(),
                query_id=query_id if query is None else None,
                query=query,
                document_id=passage_id,
                relevant=relevant,
                rank=int(results["rank"][row]),
                score=float(results["score"][row]),
                key=key,
                collection=self._manifest.data.name,
                release=self._manifest.release_id,
                stage=shown.stage,
                not_comparable=shown.not_comparable,
                kept=kept,
                of=of,
                query_hash=f"{shown.key:016x}",
            )
            weight = 1 / float(results["propensity"][row]) if counts else None
            self._active._judged.append(Judged(line, shown.key, weight, relevant if decides else None))
        return is_new

    def unknown(self) -> NotFound:
        """Return the error for an unknown reply, and for a reply to a key that may see other documents."""
        return NotFound(
            f"query_id: no reply of the last {self._seconds:g} s (feedback_seconds of TAUGATE_DRIFT) has this id"
        )

    def take(self) -> list[Judged]:
        """Return the judgements since the last call."""
        judged, self._judged = self._judged, []
        return judged

    async def _row_of(self, shown: Results, document_id: str, problem: str) -> tuple[int, str]:
        """Return the row of a document among the results, and the id of its passage."""
        if self._documents is None:
            rows = np.flatnonzero(shown["position"] == id_number(document_id))
            if not len(rows):
                raise Invalid(f"document_id: {problem} {len(shown)} others")
            return int(rows[0]), document_id
        # In a thread, because an engine may take its time to read them.
        passages = await asyncio.to_thread(self._documents.at, shown["position"].astype(np.int64))
        ids = [passage.id for passage in passages]
        if document_id in ids:
            row = ids.index(document_id)
        else:
            row = next((row for row, passage in enumerate(passages) if passage.document_id == document_id), -1)
        if row < 0:
            raise Invalid(f"document_id: {problem} {', '.join(ids[:_MAX_LISTED_IDS]) or 'nothing'}")
        return row, ids[row]

    def _look_up(self, query_id: str) -> tuple["Feedback", ShownReply] | None:
        """Return what `find` does, None if nothing valid is stored: other clients can write to Redis."""
        documents = MAX_NUMBER if self._documents is None else len(self._documents)
        for store in self._stores:
            if (stored := store.find(query_id, time.time())) is not None:
                with suppress(ValueError):
                    return self, ShownReply.read(stored, documents, self._manifest.max_score)
        return next(filter(None, (earlier._look_up(query_id) for earlier in self._earlier)), None)

    def _counts(self, query_id: str, of: int, *, relevant: bool) -> tuple[bool, bool]:
        """Return whether a judgement is the first relevant one of its reply, and the first to decide on the reply."""
        # `of` is the number of kept results, 0 for a judgement of another one, which decides nothing.
        decides = of > 0 and (relevant or self._count(f"{query_id}-") == of) and self._is_first(f"{query_id}=")
        return relevant and self._is_first(f"{query_id}:"), decides

    def _is_first(self, judgement: str) -> bool:
        """Return whether neither a worker nor a replica has had this judgement before."""
        return self._count(judgement) == 1

    def _count(self, name: str) -> int:
        return max(store.count(name) for store in self._stores)


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
        """Analyze the remaining traffic and reset the metrics."""
        # Of a release that has left, `forget` also deletes the alarms' shared state. The feedback of its
        # successor still takes judgements of its replies.
        if self._task.cancel():  # false at a second call
            await self._analyze()
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._analysis.close, forget=forget)  # may have to wait for Redis
        if not forget:
            await asyncio.to_thread(self.feedback.close)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(STORE_SECONDS)
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
    from taugate.service.replicas import Fleet

    return Fleet(url, release, seconds)
