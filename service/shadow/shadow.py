"""A shadow at work: a sample of the queries, one at a time, in a thread that everything else goes before."""

import asyncio
import contextlib
import logging
import queue
import random
import threading
from dataclasses import replace

from prometheus_client import CollectorRegistry

from taugate.errors import InputError, TaugateError
from taugate.retrieval.query import Query
from taugate.retrieval.release.reader import Release
from taugate.service.lifecycle.loading import Opener
from taugate.service.metrics import Metrics
from taugate.service.pipeline.engine import Engine
from taugate.service.runtime.resources import for_search, give_way
from taugate.service.shadow.gauges import ShadowGauges, Side, answered

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


class Shadowing:
    """Of one event loop. share: of the queries that both releases answer; with 0 no second one is ever loaded."""

    def __init__(self, opener: Opener, metrics: Metrics, share: float) -> None:
        self._opener, self._metrics, self._share = opener, metrics, share
        self._shadow: Shadow | None = None
        self.refused: str | None = None  # the release that was to be the shadow and could not

    @property
    def release_id(self) -> str | None:
        """Of the shadow at work."""
        return None if self._shadow is None else self._shadow.release.manifest.release_id

    def seen(self, query: Query) -> None:
        """A query was answered."""
        if self._shadow is not None:
            self._shadow.seen(query)

    def is_behind(self, wanted: str | None, in_service: str) -> bool:
        """Whether `renew` would change anything."""
        if not self._share or (wanted is not None and wanted == self.refused):
            return False
        return (None if wanted == in_service else wanted) != self.release_id

    async def renew(self, current: Engine) -> None:
        """Have the release that is to be the shadow beside the one in service; the same as that one is none.

        What goes wrong is in the log, and there is no shadow then: nobody who searches is concerned.
        """
        if not self._share:
            return
        wanted = None
        try:
            wanted = await self._opener.shadow()
            name = None if wanted is None or wanted.name == current.release.manifest.release_id else wanted.name
            if self._shadow is not None and name == self.release_id:
                self._shadow.current = current
                return
            await self.close()
            if name is not None and wanted is not None:
                release = await self._opener.load(wanted, threads=1)
                self._shadow = Shadow(release, current, self._share, self._metrics.of_shadow())
                _log.info("shadow", extra={"fields": {"release": name}})
            self.refused = None
        except Exception as error:  # noqa: BLE001 (as the docstring says)
            self.refused = None if wanted is None else wanted.name
            known = isinstance(error, TaugateError | OSError)
            _log.error(
                "there is no shadow", exc_info=None if known else error, extra={"fields": {"reason": str(error)}}
            )

    async def close(self) -> None:
        """Let go of the shadow."""
        shadow, self._shadow = self._shadow, None
        if shadow is not None:
            await asyncio.to_thread(shadow.close)
            self._metrics.of_shadow()
