"""Watches the engine that holds a release's documents, so that one which is away costs no query its deadline.

After a question that no server answered, the service answers 503 at once, and asks the engine a question of its own
every second. The first answer ends that. So no query is put at risk to find out, as with a circuit breaker that lets
one of them through, and the engine is found again without traffic, which it may not get while it is away.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from taugate.errors import EngineUnavailable, ReleaseError
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.connect import engine_at
from taugate.retrieval.engines.corpus import EngineAccess
from taugate.retrieval.engines.engine import Candidates, Collection, CollectionState, Positions, Rows
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings

_log = logging.getLogger("taugate.engine")
# Soon at first, as a question may time out while the engine is well.
_FIRST_PAUSE, _PAUSE = 0.1, 1.0

_Answer = TypeVar("_Answer")


# Are told of a collection: whether it answers, None where it does, else what was said; and that it is let go.
OnChange = Callable[["WatchedCollection", str | None], None]
OnClose = Callable[["WatchedCollection"], None]


class WatchedCollection:
    """A Watched collection: it is not asked while it is known not to answer.

    name, dimension: of the collection. kind: of its engine.
    """

    def __init__(
        self, record: EngineRecord, collection: Collection, seconds: float, on_change: OnChange, on_close: OnClose
    ) -> None:
        """Begin with a collection that answers.

        Args:
            record: Of the release.
            collection: That was checked.
            seconds: That one question of the watch may take.
            on_change: Is told when it stops or begins to answer.
            on_close: When it is let go; both from any thread.
        """
        self.name, self.dimension, self.kind = collection.name, collection.dimension, record.kind
        self._collection, self._seconds = collection, seconds
        self._on_change, self._on_close = on_change, on_close
        self._away: str | None = None
        self._changing = threading.Lock()
        self._closed = threading.Event()

    def propose(self, queries: Float32, count: int, wanted: Filter, deadline: float) -> Candidates:
        """See Collection.propose."""
        return self._ask(lambda: self._collection.propose(queries, count, wanted, deadline))

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """See Collection.fetch."""
        return self._ask(lambda: self._collection.fetch(positions, deadline))

    def where(self, wanted: Filter, most: int, deadline: float) -> Positions:
        """See Collection.where."""
        return self._ask(lambda: self._collection.where(wanted, most, deadline))

    def find(self, document_id: str, deadline: float) -> Positions:
        """See Collection.find."""
        return self._ask(lambda: self._collection.find(document_id, deadline))

    def state(self, deadline: float) -> CollectionState:
        """See Collection.state."""
        return self._ask(lambda: self._collection.state(deadline))

    def close(self) -> None:
        """Watch no longer."""
        self._closed.set()
        self._on_close(self)

    def check(self) -> None:
        """Raise EngineUnavailable where it is known not to answer."""
        if (away := self._away) is not None:
            raise EngineUnavailable(away)

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        """Ask; what an engine refuses, as of a collection that was dropped or released, is no answer either."""
        self.check()
        try:
            return question()
        except ReleaseError as error:
            self._stopped(str(error))
            raise EngineUnavailable(str(error)) from error

    def _stopped(self, reason: str) -> None:
        with self._changing:
            if self._away is not None or self._closed.is_set():
                return
            self._away = reason
        self._on_change(self, reason)
        threading.Thread(target=self._wait_for_it, name="taugate-engine", daemon=True).start()

    def _wait_for_it(self) -> None:
        """Ask for one row until it comes."""
        pause = _FIRST_PAUSE
        while not self._closed.wait(pause):
            pause = _PAUSE
            try:
                self._collection.fetch(np.zeros(1, dtype=np.int64), time.monotonic() + self._seconds)
            except ReleaseError:
                continue
            except Exception:  # noqa: BLE001 (whatever it is, the next question may be answered)
                _log.exception("the engine could not be asked")
                continue
            with self._changing:
                self._away = None
            self._on_change(self, None)
            return


class EngineWatch:
    """The engine of all releases that a process has open: how they reach it, and whether it answers."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """settings: say where the engine is; metrics: show whether it answers."""
        self._settings, self._up = settings.engine, metrics.engine_up
        self._open: set[WatchedCollection] = set()
        self._away: set[WatchedCollection] = set()
        self._show()

    @property
    def access(self) -> EngineAccess:
        """How a release reaches the engine. Connecting raises InputError where the settings name none."""
        url = "" if self._settings.url is None else self._settings.url.get_secret_value()
        return EngineAccess(
            connect=lambda kind: engine_at(kind, url, self._settings.token_file),
            seconds=self._settings.seconds,
            watch=self._watch,
        )

    def unreachable(self) -> None:
        """Note that a release could not be opened, as the engine does not answer."""
        self._up.set(0)

    def _watch(self, record: EngineRecord, collection: Collection) -> WatchedCollection:
        watched = WatchedCollection(record, collection, self._settings.seconds, self._changed, self._let_go)
        self._open.add(watched)
        self._show()
        return watched

    def _changed(self, collection: WatchedCollection, reason: str | None) -> None:
        fields = {"engine": collection.kind, "collection": collection.name}
        if reason is not None:
            self._away.add(collection)
            _log.warning("the engine does not answer", extra={"fields": fields | {"reason": reason}})
        else:
            self._away.discard(collection)
            _log.info("the engine answers", extra={"fields": fields})
        self._show()

    def _let_go(self, collection: WatchedCollection) -> None:
        self._open.discard(collection)
        self._away.discard(collection)
        self._show()

    def _show(self) -> None:
        # Without a release that needs one it is neither up nor down, so that no alert takes it for an outage.
        self._up.set(int(self._away.isdisjoint(self._open)) if self._open else math.nan)
