"""Compares the answers of the shadow with those of the active release, and counts the differences for Prometheus."""

import math
import time
from dataclasses import dataclass, replace

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from taugate.retrieval.documents.store import Documents
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.retriever import Retriever
from taugate.service.metrics import STAGE_SECONDS

_NO_THRESHOLD = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class ShadowAnswer:
    """The answer of one of the two releases to a query.

    Attributes:
        considered: Ids of the top-K.
        kept: Ids of the kept results. Both are ids of documents if the query groups its results, because the two
            releases may divide a document differently.
        seconds: Time from the query's text to the answer.
    """

    considered: list[str]
    kept: list[str]
    seconds: float


def answer(query: Query, retriever: Retriever, documents: Documents) -> ShadowAnswer:
    """Answer a query with a release's retriever and documents.

    Raises:
        InputError: If the filter names a field that none of its documents has.
    """
    began = time.perf_counter()
    tokens = retriever.tokens([query.text])
    query, vectors = query.as_read(tokens[0]), retriever.embed(tokens)
    (cut,) = retriever.answer([query], vectors)
    kept = _ids(query, cut, documents)
    seconds = time.perf_counter() - began
    (uncut,) = retriever.answer([replace(query, threshold=_NO_THRESHOLD)], vectors)
    return ShadowAnswer(_ids(query, uncut, documents), kept, seconds)


def _ids(query: Query, answer: Answer, documents: Documents) -> list[str]:
    return [document.document_id if query.group_by else document.id for document in answer.read(documents)]


def overlap(first: ShadowAnswer, second: ShadowAnswer) -> float:
    """Return the share of the longer top-K that both have, 0…1; 1 if both are empty."""
    longest = max(len(first.considered), len(second.considered))
    return len({*first.considered} & {*second.considered}) / longest if longest else 1.0


_SIDES = ("current", "shadow")
_OUTCOMES = ("compared", "skipped", "failed")
_TENTHS = tuple(tenth / 10 for tenth in range(11))


class ShadowGauges:
    """Metrics of one shadow, on a registry of its own.

    The label `side` is `shadow`, or `current` for the active release, which answers the query again so that both run
    under the same conditions.
    """

    def __init__(self, registry: CollectorRegistry, manifest: Manifest) -> None:
        """Register the metrics of the shadow with this manifest."""

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"taugate_shadow_{name}", meaning, labels, registry=registry)

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            full = f"taugate_shadow_{name}"
            return Gauge(full, meaning, labels, registry=registry, multiprocess_mode="livemostrecent")

        names = ("release", "encoder", "policy")
        self._info = gauge("release_info", "The shadow release, compared with the one in service.", *names)
        self._info = self._info.labels(manifest.release_id, manifest.answering.name, manifest.policy.kind)
        self._info.set(1)
        threshold = gauge("threshold", "τ of the shadow.")
        threshold.set(math.nan if manifest.policy.tau is None else manifest.policy.tau)
        self._queries = counter("queries", "Sampled queries, by outcome (compared, skipped or failed).", "outcome")
        self._changed = counter("changed_responses", "Queries whose kept documents, or their order, differ.")
        self._results = counter(
            "results", "Retrieved documents, by side and outcome (kept or dropped).", "side", "outcome"
        )
        self._empty = counter("empty_responses", "Queries without a kept document, by side.", "side")
        self._overlap = Histogram(
            "taugate_shadow_overlap",
            "Share of the top-K documents that both releases return.",
            buckets=_TENTHS,
            registry=registry,
        )
        self._seconds = Histogram(
            "taugate_shadow_duration_seconds",
            "Seconds from a query's text to its answer, by side.",
            ["side"],
            buckets=STAGE_SECONDS,
            registry=registry,
        )
        for outcome in _OUTCOMES:
            self._queries.labels(outcome)

    def close(self) -> None:
        """Mark the release as no longer the shadow, because other processes would keep exporting it."""
        self._info.set(0)

    def count(self, outcome: str) -> None:
        """Count a sampled query: compared, skipped (the shadow is behind) or failed."""
        self._queries.labels(outcome).inc()

    def compare(self, current: ShadowAnswer, shadow: ShadowAnswer) -> None:
        """Count the differences between the answers to one query."""
        self.count("compared")
        self._changed.inc(current.kept != shadow.kept)
        self._overlap.observe(overlap(current, shadow))
        for name, side in zip(_SIDES, (current, shadow), strict=True):
            self._results.labels(name, "kept").inc(len(side.kept))
            self._results.labels(name, "dropped").inc(len(side.considered) - len(side.kept))
            self._empty.labels(name).inc(not side.kept)
            self._seconds.labels(name).observe(side.seconds)
