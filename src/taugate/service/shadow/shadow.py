"""The running shadow: answers a sample of the queries again, one at a time, in a thread of low priority."""

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
from taugate.service.runtime.resources import search_in_background
from taugate.service.shadow.gauges import ShadowGauges, answer

_log = logging.getLogger(__name__)
# Waiting queries. One takes some 10 ms, so that this is a second of work; further queries are skipped.
_MAX_WAITING = 100


class Shadow:
    """A release on trial: both releases answer a share of the queries, and their differences are counted.

    `current`, the pipeline of the active release, may be replaced at any time.
    """

    def __init__(self, release: Release, current: SearchPipeline, share: float, registry: CollectorRegistry) -> None:
        """Start the thread, which answers a share of the queries, 0…1; `close` closes the release on trial."""
        self.release = release
        self.current = current
        self._share = share
        self._gauges = ShadowGauges(registry, release.manifest)
        self._queue: queue.Queue[Query | None] = queue.Queue(_MAX_WAITING)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="taugate-shadow", daemon=True)
        self._thread.start()

    def offer(self, query: Query) -> None:
        """Sample a query that was answered, to have both releases answer it."""
        if random.random() >= self._share:  # noqa: S311 (no secret)
            return
        try:
            if self._can_answer(query):
                self._queue.put_nowait(replace(query, exploration=None, with_parts=False))
            else:
                self._gauges.count("skipped")
        except queue.Full:
            self._gauges.count("skipped")

    def _can_answer(self, query: Query) -> bool:
        """Return whether both releases can.

        A vector means nothing to the encoder of another release, and a threshold to another score.
        """
        shadow, current = (release.manifest for release in (self.release, self.current.release))
        if query.threshold is not None and (shadow.scorer, shadow.policy.kind) != (current.scorer, current.policy.kind):
            return False
        if query.vector is None:
            return shadow.reads_texts
        # With a second stage, that is what scores, and its texts are needed beside the vectors.
        encoders = {(manifest.float32_encoder or manifest.answering).sha256 for manifest in (shadow, current)}
        return len(encoders) == 1

    def close(self) -> None:
        """Finish the current query, drop the waiting ones, and close the release."""
        self._closed = True
        with contextlib.suppress(queue.Full):  # a full queue wakes the thread as well
            self._queue.put_nowait(None)
        self._thread.join()
        self._gauges.close()
        self.release.close()

    def _run(self) -> None:
        search_in_background()
        while (query := self._queue.get()) is not None and not self._closed:
            try:
                self._compare(query)
            except InputError:  # a filter on a field that only one release has
                self._gauges.count("failed")
            except Exception:  # noqa: BLE001 (whatever the error, the next query may succeed)
                self._gauges.count("failed")
                _log.exception("shadow comparison failed")

    def _compare(self, query: Query) -> None:
        current, k = self.current.release, self.release.manifest.policy.k
        default = query.k == current.manifest.policy.k  # requested or not, the same unless the two releases differ in K
        shadow_query = replace(query, k=k, min_results=min(query.min_results, k)) if default else query
        current_top, current_seconds = answer(query, self.current.single_threaded, current.documents)
        shadow_top, shadow_seconds = answer(shadow_query, self.release.retriever, self.release.documents)
        self._gauges.compare(current_top, shadow_top, (current_seconds, shadow_seconds))
