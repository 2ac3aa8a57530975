"""From query texts to kept results: encode, search, cut. The path that calibration measures and the service runs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.encoder import Role
from retrieval.index import TopK
from retrieval.policy import Policy, PolicyKind, keep
from retrieval.similarity import Float32

Reason = Literal["all_below_threshold"]
Observe = Callable[[str, float], None]


class Encoder(Protocol):
    """Texts to unit vectors, float32 (n, d)."""

    def encode(self, texts: Sequence[str], role: Role) -> Float32:
        """Unit vectors of `texts` in their order."""
        ...


class Index(Protocol):
    """Top-K by similarity."""

    def search(self, queries: Float32, k: int) -> TopK:
        """The min(k, N) most similar documents, ties to the lower position."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """One search. `threshold` overrides τ; at least `min_results` are returned even where they score below it."""

    text: str
    k: int
    threshold: float | None = None
    min_results: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What is kept of one query's top-K, best first, and why nothing else is.

    positions, scores: (kept,) document positions and float32 similarities; considered: how many the index returned;
    best_score: the highest similarity, kept or not; calibrated: whether the calibrated threshold, with the evidence
    for it, was in force.
    """

    positions: NDArray[np.int64]
    scores: Float32
    considered: int
    best_score: float | None
    threshold: float | None
    policy: PolicyKind
    calibrated: bool
    reason: Reason | None


def _no_observer(stage: str, seconds: float) -> None:
    """Stage times go nowhere unless somebody asks for them."""


class Retriever:
    """An encoder, an index and a policy that were calibrated together."""

    def __init__(self, encoder: Encoder, index: Index, policy: Policy) -> None:
        self.encoder = encoder
        self.index = index
        self.policy = policy

    def search(self, queries: Sequence[Query], observe: Observe = _no_observer) -> list[Answer]:
        """Answer queries together: one pass through the encoder, one through the index.

        `observe` is told the seconds spent in each stage, "encode" and "search".
        """
        if not queries:
            return []
        start = time.perf_counter()
        vectors = self.encoder.encode([query.text for query in queries], "query")
        encoded = time.perf_counter()
        top = self.index.search(vectors, max(query.k for query in queries))
        observe("encode", encoded - start)
        observe("search", time.perf_counter() - encoded)
        return [
            self._cut(query, top.positions[row, : query.k], top.scores[row, : query.k])
            for row, query in enumerate(queries)
        ]

    def _cut(self, query: Query, positions: NDArray[np.int64], scores: Float32) -> Answer:
        threshold = self.policy.threshold if query.threshold is None else np.float32(query.threshold)
        kept = max(int(keep(scores, threshold).sum()), min(query.min_results, len(scores)))
        # τ was calibrated for the first K results. It loses no more among fewer of them, but may among more.
        calibrated = query.threshold is None and self.policy.kind != "none" and query.k <= self.policy.k
        return Answer(
            positions=positions[:kept],
            scores=scores[:kept],
            considered=len(scores),
            best_score=float(scores[0]) if len(scores) else None,
            threshold=None if threshold is None else float(threshold),
            policy=self.policy.kind,
            calibrated=calibrated,
            reason=None if kept else "all_below_threshold",
        )
