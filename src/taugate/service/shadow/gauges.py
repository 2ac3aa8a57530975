"""Compares the answers of a shadow with those of the release in service, and counts the differences for Prometheus."""

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
        kept: Ids of those that it keeps; both of documents where the query groups its results, as the two releases may
            divide a document differently.
        seconds: From the query's text to the answer.
    """

    considered: list[str]
    kept: list[str]
    seconds: float


def answer(query: Query, retriever: Retriever, documents: Documents) -> ShadowAnswer:
    """Answer a query by a release's retriever and documents.

    Raises:
        InputError: For a filter on a field that none of its documents has.
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
    return [each.document_id if query.group_by else each.id for each in answer.read(documents)]


def overlap(one: ShadowAnswer, other: ShadowAnswer) -> float:
    """Return the share of the longer top-K that is in the other as well, 0…1; two that found nothing agree."""
    longest = max(len(one.considered), len(other.considered))
    return len({*one.considered} & {*other.considered}) / longest if longest else 1.0


_SIDES = ("current", "shadow")
_OUTCOMES = ("compared", "skipped", "failed")
_TENTHS = tuple(tenth / 10 for tenth in range(11))


class ShadowGauges:
    """Metrics of one shadow, on a registry that goes with it.

    The label `side` is `current` for the release in service, which answers once more so that both have the same
    conditions, or `shadow`.
    """

    def __init__(self, registry: CollectorRegistry, manifest: Manifest) -> None:
        """registry: for these metrics alone; manifest: of the shadow."""

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"taugate_shadow_{name}", meaning, labels, registry=registry)

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            full = f"taugate_shadow_{name}"
            return Gauge(full, meaning, labels, registry=registry, multiprocess_mode="livemostrecent")

        names = ("release", "encoder", "policy")
        self._info = gauge("release_info", "The release that is tried beside the one in service.", *names)
        self._info = self._info.labels(manifest.release_id, manifest.answering.name, manifest.policy.kind)
        self._info.set(1)
        threshold = gauge("threshold", "τ of the shadow.")
        threshold.set(math.nan if manifest.policy.tau is None else manifest.policy.tau)
        self._queries = counter("queries", "Queries chosen for both, by what became of them.", "outcome")
        self._changed = counter("changed_responses", "Queries of which both keep other documents, or another order.")
        self._results = counter("results", "Documents considered, by what became of them.", "side", "outcome")
        self._empty = counter("empty_responses", "Queries that are left without a document.", "side")
        self._overlap = Histogram(
            "taugate_shadow_overlap",
            "Share of the top-K that both have.",
            buckets=_TENTHS,
            registry=registry,
        )
        self._seconds = Histogram(
            "taugate_shadow_duration_seconds",
            "From a query's text to its answer.",
            ["side"],
            buckets=STAGE_SECONDS,
            registry=registry,
        )
        for outcome in _OUTCOMES:
            self._queries.labels(outcome)

    def close(self) -> None:
        """Say that the release is no shadow any more, which other processes would go on showing."""
        self._info.set(0)

    def count(self, outcome: str) -> None:
        """Count a query of the sample.

        Args:
            outcome: Compared, skipped (the shadow is behind) or failed.
        """
        self._queries.labels(outcome).inc()

    def compare(self, current: ShadowAnswer, shadow: ShadowAnswer) -> None:
        """Count the differences between both answers to one query."""
        self.count("compared")
        self._changed.inc(current.kept != shadow.kept)
        self._overlap.observe(overlap(current, shadow))
        for name, side in zip(_SIDES, (current, shadow), strict=True):
            self._results.labels(name, "kept").inc(len(side.kept))
            self._results.labels(name, "dropped").inc(len(side.considered) - len(side.kept))
            self._empty.labels(name).inc(not side.kept)
            self._seconds.labels(name).observe(side.seconds)
