"""The exact top-K from candidates, and the proof that no document left out belongs to it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.vectors.similarity import Float32


class Within:
    """Some of the N documents of an index; mask: (N,) bool."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self._mask = mask
        self.positions = np.flatnonzero(mask)

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def selector(self) -> Any:  # noqa: ANN401 (faiss has no types)
        """The same for FAISS, one bit a document."""
        return faiss.IDSelectorBitmap(np.packbits(self._mask, bitorder="little"))


# Candidates beyond K, so that FAISS's own rounding cannot push a document of the top-K out of them.
SPARE = 16
# Above so many candidates for one query, every document is scored instead: a corpus of copies of one text.
MOST_CANDIDATES = 1024


@dataclass(frozen=True)
class TopK:
    """The K most similar documents of n queries, best first; float32 (n, K) scores and int64 (n, K) positions."""

    scores: Float32
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)


class Scored(Protocol):
    """Documents that a query can be compared with."""

    def score(self, queries: Float32, positions: NDArray[np.int64]) -> Float32:
        """Similarity of query i with the documents at `positions[i]`, to the bit as a search has it; (n, c)."""
        ...

    def __len__(self) -> int: ...


class Searched(Scored, Protocol):
    """Documents that a query finds by similarity."""

    def search(self, queries: Float32, k: int) -> TopK:
        """The min(k, N) most similar documents of each query, ties to the lower position; queries: (n, d) unit."""
        ...


class Index(Searched, Protocol):
    """Documents by similarity, as what is stored of them says."""

    def search_within(self, queries: Float32, k: int, within: Within) -> TopK:
        """The min(k, M) most similar of the M documents in `within`, exactly, whatever the kind; M may be 0."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        ...


_BLOCK = 4096  # documents scored at a time where all of them are


def ranked(index: Scored, queries: Float32, found: NDArray[np.int64], k: int) -> tuple[TopK, Float32]:
    """The k most similar of the documents found for each query, (n, c ≥ k), and the lowest score found; -1 is none."""
    found = np.sort(found, axis=1)  # by position, so that a stable sort by score keeps the lower one of a tie
    exact = index.score(queries, np.maximum(found, 0))
    exact[found < 0] = -np.inf
    order = np.argsort(-exact, axis=1, kind="stable")[:, :k]
    rows = np.arange(len(found))[:, None]
    top = TopK(exact[rows, order], found[rows, order])
    return top, exact.min(axis=1)


def among(
    index: Scored, query: Float32, k: int, members: NDArray[np.int64] | None = None
) -> tuple[Float32, NDArray[np.int64]]:
    """Top k of one query, (1, d), by scoring every document, or each of those at `members`, (M,) rising positions."""
    members = np.arange(len(index)) if members is None else members
    parts = np.array_split(members, len(members) // _BLOCK + 1)
    scores = np.concatenate([index.score(query, part[None])[0] for part in parts])
    best = np.argsort(-scores, kind="stable")[:k]
    return scores[best], members[best]


# Rough scores and positions of the most similar documents of each query, (n, fetch) each, best first.
Propose = Callable[[Float32, int], tuple[Float32, NDArray[np.int64]]]


def complete(
    index: Scored, propose: Propose, bound: float, queries: Float32, k: int, members: NDArray[np.int64] | None = None
) -> TopK:
    """The min(k, M) most similar of the documents at `members`, (M,) rising positions, M ≥ 1; None is all of them.

    propose: from among the members, with rough scores no further than `bound` from the similarity. Ties go to the
    lower position.
    """
    count = len(index) if members is None else len(members)
    k = min(k, count)
    scores = np.empty((len(queries), k), dtype=np.float32)
    positions = np.empty((len(queries), k), dtype=np.int64)
    pending = np.arange(len(queries))
    fetch = k + SPARE
    while len(pending) and fetch <= max(MOST_CANDIDATES, k + SPARE):
        fetch = min(fetch, count)
        rough, found = propose(queries[pending], fetch)
        top, _ = ranked(index, queries[pending], found, k)
        scores[pending], positions[pending] = top.scores, top.positions
        proven = rough[:, -1] + bound < top.scores[:, -1] if fetch < count else np.full(len(pending), True)
        pending = pending[~proven]
        fetch *= 4
    for row in pending:
        scores[row], positions[row] = among(index, queries[row : row + 1], k, members)
    return TopK(scores, positions)
