"""A shadow at work: a sample of the queries, one at a time, in a thread that everything else goes before."""

import contextlib
import logging
import queue
import random
import threading
from dataclasses import replace

from prometheus_client import CollectorRegistry

from taugate.errors import InputError
from taugate.retrieval.release.reader import Release
from taugate.retrieval.retriever import Query
from taugate.service.pipeline.engine import Engine
from taugate.service.runtime.threads import for_search, give_way
from taugate.service.shadow.compare import Side, answered
from taugate.service.shadow.gauges import ShadowGauges

_log = logging.getLogger("taugate.shadow")
# Queries that wait. One takes some 10 ms, so that these are a second of work; what comes while they wait is skipped.
_MOST_WAITING = 100


class Shadow:
    """release: the one that is tried; share: of the queries that both answer, 0…1."""

    def __init__(self, release: Release, current: Engine, share: float, registry: CollectorRegistry) -> None:
        self.release = release
        self.current = current  # of whichever release is in service
        self._share = share
        self._gauges = ShadowGauges(registry, release.manifest)
        self._queue: queue.Queue[Query | None] = queue.Queue(_MOST_WAITING)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="taugate-shadow", daemon=True)
        self._thread.start()

    def seen(self, query: Query) -> None:
        """A query was answered; now and then it is answered by both."""
        if random.random() >= self._share:  # noqa: S311 (no secret)
            return
        try:
            self._queue.put_nowait(query)
        except queue.Full:
            self._gauges.count("skipped")

    def close(self) -> None:
        """Finish the query at work and drop those that wait."""
        self._closed = True
        with contextlib.suppress(queue.Full):  # then the thread has something to wake up for
            self._queue.put_nowait(None)
        self._thread.join()
        self._gauges.close()
        self.release.close()

    def _run(self) -> None:
        for_search(1)
        give_way()
        while (query := self._queue.get()) is not None and not self._closed:
            try:
                self._gauges.compared(*self._both(query))
            except InputError:  # a filter on a field that only one of them has
                self._gauges.count("failed")
            except Exception:  # noqa: BLE001 (whatever it is, the next query is another one)
                self._gauges.count("failed")
                _log.exception("the shadow could not answer")

    def _both(self, query: Query) -> tuple[Side, Side]:
        current, k = self.current.release, self.release.manifest.policy.k
        default = query.k == current.manifest.policy.k  # or asked for, which comes to the same where nothing changes
        other = replace(query, k=k, min_results=min(query.min_results, k)) if default else query
        return (
            answered(query, self.current.single, current.documents),
            answered(other, self.release.retriever, self.release.documents),
        )
