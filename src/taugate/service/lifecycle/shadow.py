"""The running shadow answers a sample of the queries again, in a thread of low priority; differences are counted."""

import asyncio
import contextlib
import logging
import math
import queue
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from taugate.errors import InputError
from taugate.release.manifest import Manifest
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.query import Answer, Query
from taugate.service.lifecycle.loading import ReleaseLoader, log_failure, may_pass
from taugate.service.metrics import SHADOW_INFO, STAGE_SECONDS, MetricGroup, Metrics, counter, gauge, histogram
from taugate.service.runtime.resources import check_memory, search_in_background

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.reader import Release
    from taugate.retrieval.retriever import Retriever
    from taugate.service.pipeline.search import SearchPipeline

_log = logging.getLogger(__name__)

# The top-K of a release, in order, and whether each result is kept. By ids of documents if the query groups results,
# because the two releases may divide a document differently.
TopK = Mapping[str, bool]
# Waiting queries. One takes some 10 ms, so that this is a second of work; further queries are skipped.
_MAX_WAITING = 100


def answer(query: Query, retriever: "Retriever", documents: Documents) -> tuple[TopK, float]:
    """Answer a query; returns the top-K of a release, and the seconds from the text to the results."""
    began = time.perf_counter()
    (query,), vectors = retriever.read([query])
    (cut,) = retriever.answer([query], vectors)
    kept = {*_ids(query, cut, documents)}
    seconds = time.perf_counter() - began
    (uncut,) = retriever.answer([replace(query, min_results=query.k)], vectors)
    return {name: name in kept for name in _ids(query, uncut, documents)}, seconds


def _ids(query: Query, answer: Answer, documents: Documents) -> list[str]:
    return [document.document_id if query.group_by else document.id for document in answer.read(documents)]


def kept_of(top: TopK) -> list[str]:
    """Return the ids of the kept results, in order."""
    return [name for name, kept in top.items() if kept]


def overlap(first: TopK, second: TopK) -> float:
    """Return the share of the longer top-K that both have, 0…1; 1 if both are empty."""
    longest = max(len(first), len(second))
    return len(first.keys() & second.keys()) / longest if longest else 1.0


_SIDES = ("current", "shadow")
_TENTHS = tuple(tenth / 10 for tenth in range(11))


class ShadowGauges(MetricGroup):
    """Metrics of one shadow, on a registry of its own.

    The label `side` is `shadow`, or `current` for the active release, which answers the query again so that both
    run under the same conditions.
    """

    _info = gauge(SHADOW_INFO, "The shadow release, compared with the one in service.", "release", "encoder", "policy")
    _threshold = gauge("taugate_shadow_threshold", "τ of the shadow.")
    _queries = counter(
        "taugate_shadow_queries",
        "Sampled queries, by outcome (compared, skipped or failed).",
        "outcome",
        values=("compared", "skipped", "failed"),
    )
    _changed = counter("taugate_shadow_changed_responses", "Queries whose kept documents, or their order, differ.")
    _results = counter(
        "taugate_shadow_results", "Retrieved documents, by side and outcome (kept or dropped).", "side", "outcome"
    )
    _empty = counter("taugate_shadow_empty_responses", "Queries without a kept document, by side.", "side")
    _overlap = histogram(
        "taugate_shadow_overlap", "Share of the top-K documents that both releases return.", buckets=_TENTHS
    )
    _seconds = histogram(
        "taugate_shadow_duration_seconds",
        "Seconds from a query's text to its answer, by side.",
        "side",
        buckets=STAGE_SECONDS,
    )

    def __init__(self, registry: CollectorRegistry, manifest: Manifest) -> None:
        """Register the metrics of the shadow with this manifest."""
        super().__init__(registry)
        self._release = self._info.labels(manifest.release_id, manifest.answering.name, manifest.policy.kind)
        self._release.set(1)
        self._threshold.set(math.nan if manifest.policy.tau is None else manifest.policy.tau)

    def close(self) -> None:
        """Mark the release as no longer the shadow, because other processes would keep exporting it."""
        self._release.set(0)

    def count(self, outcome: str) -> None:
        """Count a sampled query: compared, skipped (the shadow is behind) or failed."""
        self._queries.labels(outcome).inc()

    def compare(self, current: TopK, shadow: TopK, seconds: tuple[float, float]) -> None:
        """Count the differences between the answers to one query, which took so many seconds."""
        self.count("compared")
        self._changed.inc(kept_of(current) != kept_of(shadow))
        self._overlap.observe(overlap(current, shadow))
        for side, top, took in zip(_SIDES, (current, shadow), seconds, strict=True):
            kept = sum(top.values())
            self._results.labels(side, "kept").inc(kept)
            self._results.labels(side, "dropped").inc(len(top) - kept)
            self._empty.labels(side).inc(not kept)
            self._seconds.labels(side).observe(took)


class Shadow:
    """A release on trial: both releases answer a share of the queries, and their differences are counted.

    `current`, the pipeline of the active release, may be replaced at any time.
    """

    def __init__(
        self, release: "Release", current: "SearchPipeline", share: float, registry: CollectorRegistry
    ) -> None:
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
        """Return whether both releases can."""
        # A vector means nothing to the encoder of another release, and a threshold to another score.
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


class Shadowing:
    """The shadow release, if there is one. Belongs to one event loop."""

    def __init__(self, loader: ReleaseLoader, metrics: Metrics, share: float) -> None:
        """Answer a share of the queries, 0…1, with the shadow as well; with a share of 0 none is ever loaded."""
        self._loader, self._metrics, self._share = loader, metrics, share
        self.active: Shadow | None = None
        self.refused: str | None = None  # id of the release that could not be loaded as the shadow

    @property
    def release_id(self) -> str | None:
        """Id of the running shadow."""
        return None if self.active is None else self.active.release.manifest.release_id

    def is_behind(self, configured: str | None, active: str) -> bool:
        """Return whether `renew` would change anything, given the ids of the configured shadow and of the release."""
        if not self._share or (configured is not None and configured == self.refused):
            return False
        return (None if configured == active else configured) != self.release_id

    async def renew(self, current: "SearchPipeline | None") -> None:
        """Load the configured shadow, unless it is the active release itself, whose pipeline is `current`."""
        # Without a pipeline, the active release cuts the results of another retriever, and has no shadow.
        # Errors are logged and leave the service without a shadow, because searches do not depend on one.
        if not self._share:
            return
        folder = None
        try:
            folder = await self._loader.shadow()
            if current is None or (folder is not None and folder.name == current.release.manifest.release_id):
                folder = None
            name = None if folder is None else folder.name
            if current is not None and self.active is not None and name == self.release_id:
                self.active.current = current
                return
            await self.close()
            if folder is not None and current is not None:
                await asyncio.to_thread(check_memory, folder.parent / current.release.manifest.release_id, folder)
                release = await self._loader.load(folder, threads=1)
                self.active = Shadow(release, current, self._share, self._metrics.new_shadow_registry())
                _log.info("shadow release loaded", extra={"fields": {"release": name}})
            self.refused = None
        except Exception as error:  # noqa: BLE001 (as the docstring says)
            self.refused = None if folder is None or may_pass(error) else folder.name
            log_failure("cannot load the shadow release", error)

    async def close(self) -> None:
        """Close the shadow and remove its metrics."""
        shadow, self.active = self.active, None
        if shadow is not None:
            await asyncio.to_thread(shadow.close)
            self._metrics.new_shadow_registry()
