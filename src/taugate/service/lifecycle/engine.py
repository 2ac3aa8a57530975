"""Watches the engine that holds a release's documents, so that queries need not time out while it is down.

After a call that no server answered, the service replies 503 at once and probes the engine every second until it
responds. Unlike a circuit breaker that lets single queries through, this puts no query at risk, and it also notices the
recovery without traffic.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from taugate.errors import EngineUnavailable, ReleaseError
from taugate.policy.arrays import Float32
from taugate.release.engine import EngineRecord
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.connect import EngineAccess, engine_at
from taugate.retrieval.engines.engine import Candidates, Collection, CollectionState, Positions, Rows
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings

_log = logging.getLogger(__name__)
_FIRST_PAUSE, _PAUSE = 0.1, 1.0  # seconds; short at first, because a single call may time out on a healthy engine

_Result = TypeVar("_Result")


class WatchedCollection:
    """A Watched collection, with the kind of its engine: calls fail at once while the engine is known to be down."""

    def __init__(self, watch: "EngineWatch", record: EngineRecord, collection: Collection, seconds: float) -> None:
        """Start with a collection that responds, whose probes end after so many seconds.

        `watch` is told, from any thread, when the collection stops responding, responds again, or is closed.
        """
        self.name, self.dimension, self.kind = collection.name, collection.dimension, record.kind
        self._watch, self._collection, self._seconds = watch, collection, seconds
        self._away: str | None = None
        self._changing = threading.Lock()
        self._closed = threading.Event()

    def propose(self, queries: Float32, count: int, query_filter: Filter, deadline: float) -> Candidates:
        """See Collection.propose."""
        return self._call(lambda: self._collection.propose(queries, count, query_filter, deadline))

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """See Collection.fetch."""
        return self._call(lambda: self._collection.fetch(positions, deadline))

    def where(self, query_filter: Filter, limit: int, deadline: float, among: Positions | None = None) -> Positions:
        """See Collection.where."""
        return self._call(lambda: self._collection.where(query_filter, limit, deadline, among))

    def find(self, document_id: str, deadline: float) -> Positions:
        """See Collection.find."""
        return self._call(lambda: self._collection.find(document_id, deadline))

    def state(self, deadline: float) -> CollectionState:
        """See Collection.state."""
        return self._call(lambda: self._collection.state(deadline))

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._watch.closed(self)

    def check(self) -> None:
        """Raise EngineUnavailable if the engine is known to be down."""
        if (away := self._away) is not None:
            raise EngineUnavailable(away)

    def _call(self, call: Callable[[], _Result]) -> _Result:
        """Call the engine; refusals, as for a collection that was dropped or released, count as down as well."""
        self.check()
        try:
            return call()
        except ReleaseError as error:
            self._mark_down(str(error))
            raise EngineUnavailable(str(error)) from error

    def _mark_down(self, reason: str) -> None:
        with self._changing:
            if self._away is not None or self._closed.is_set():
                return
            self._away = reason
        self._watch.changed(self, reason)
        threading.Thread(target=self._probe, name="taugate-engine", daemon=True).start()

    def _probe(self) -> None:
        """Fetch one row again and again until that succeeds."""
        pause = _FIRST_PAUSE
        while not self._closed.wait(pause):
            pause = _PAUSE
            try:
                self._collection.fetch(np.zeros(1, dtype=np.int64), time.monotonic() + self._seconds)
            except ReleaseError:
                continue
            except Exception:  # noqa: BLE001 (whatever the error, the next probe may succeed)
                _log.exception("engine probe failed")
                continue
            with self._changing:
                self._away = None
            self._watch.changed(self, None)
            return


class EngineWatch:
    """The engine of all releases that a process has open: how they reach it, and whether it responds."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Watch the engine of the settings, and report to `taugate_engine_up`."""
        self._settings, self._up = settings.engine, metrics.engine_up
        self._open: set[WatchedCollection] = set()
        self._away: set[WatchedCollection] = set()
        self._show()

    @property
    def access(self) -> EngineAccess:
        """How a release reaches the engine. Connecting raises InputError if the settings name no engine."""
        url = "" if self._settings.url is None else self._settings.url.get_secret_value()
        return EngineAccess(
            connect=lambda kind: engine_at(kind, url, self._settings.token_file),
            seconds=self._settings.seconds,
            watch=self._watch,
        )

    def mark_unreachable(self) -> None:
        """Record that a release could not be opened because the engine is not responding."""
        self._up.set(0)

    def _watch(self, record: EngineRecord, collection: Collection) -> WatchedCollection:
        watched = WatchedCollection(self, record, collection, self._settings.seconds)
        self._open.add(watched)
        self._show()
        return watched

    def changed(self, collection: WatchedCollection, reason: str | None) -> None:
        """Record that a collection stopped responding, with the reason, or responds again, None."""
        fields = {"engine": collection.kind, "collection": collection.name}
        if reason is not None:
            self._away.add(collection)
            _log.warning("engine is not responding", extra={"fields": fields | {"reason": reason}})
        else:
            self._away.discard(collection)
            _log.info("engine is responding again", extra={"fields": fields})
        self._show()

    def closed(self, collection: WatchedCollection) -> None:
        """Forget a collection that was closed."""
        self._open.discard(collection)
        self._away.discard(collection)
        self._show()

    def _show(self) -> None:
        # NaN while no release needs an engine, so that no alert takes it for an outage.
        self._up.set(int(self._away.isdisjoint(self._open)) if self._open else math.nan)
