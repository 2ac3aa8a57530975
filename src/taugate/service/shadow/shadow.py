"""A shadow at work: answers a sample of the queries once more, one at a time, in a thread of low priority."""

import contextlib
import logging
import queue
import random
import threading
from dataclasses import replace

from prometheus_client import CollectorRegistry

from taugate.errors import InputError
from taugate.retrieval.query import Query
from taugate.retrieval.release.reader import Release
from taugate.service.pipeline.search import SearchPipeline
from taugate.service.runtime.resources import lower_priority, set_search_threads
from taugate.service.shadow.gauges import ShadowAnswer, ShadowGauges, answer

_log = logging.getLogger("taugate.shadow")
# Queries that wait. One takes some 10 ms, so that these are a second of work; what comes while they wait is skipped.
_MAX_WAITING = 100


class Shadow:
    """A release that is tried: both releases answer a share of the queries, and their differences are counted.

    Attributes:
        current: The pipeline of the release in service, which may be set to another at any time.
    """

    def __init__(self, release: Release, current: SearchPipeline, share: float, registry: CollectorRegistry) -> None:
        """Start the thread.

        Args:
            release: The one that is tried, which `close` closes.
            current: See above.
            share: Of the queries, 0…1.
            registry: For the metrics, which go with the shadow.
        """
        self.release = release
        self.current = current
        self._share = share
        self._gauges = ShadowGauges(registry, release.manifest)
        self._queue: queue.Queue[Query | None] = queue.Queue(_MAX_WAITING)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="taugate-shadow", daemon=True)
        self._thread.start()

    def offer(self, query: Query) -> None:
        """Take a query that was answered, now and then, to answer it by both."""
        if random.random() >= self._share:  # noqa: S311 (no secret)
            return
        try:
            self._queue.put_nowait(replace(query, exploration=None))
        except queue.Full:
            self._gauges.count("skipped")

    def close(self) -> None:
        """Finish the query at work, drop those that wait, and close the release."""
        self._closed = True
        with contextlib.suppress(queue.Full):  # then the thread has something to wake up for
            self._queue.put_nowait(None)
        self._thread.join()
        self._gauges.close()
        self.release.close()

    def _run(self) -> None:
        set_search_threads(1)
        lower_priority()
        while (query := self._queue.get()) is not None and not self._closed:
            try:
                self._gauges.compare(*self._answer_both(query))
            except InputError:  # a filter on a field that only one of them has
                self._gauges.count("failed")
            except Exception:  # noqa: BLE001 (whatever it is, the next query is another one)
                self._gauges.count("failed")
                _log.exception("the shadow could not answer")

    def _answer_both(self, query: Query) -> tuple[ShadowAnswer, ShadowAnswer]:
        current, k = self.current.release, self.release.manifest.policy.k
        default = query.k == current.manifest.policy.k  # or asked for, which comes to the same where nothing changes
        other = replace(query, k=k, min_results=min(query.min_results, k)) if default else query
        return (
            answer(query, self.current.single_threaded, current.documents),
            answer(other, self.release.retriever, self.release.documents),
        )
