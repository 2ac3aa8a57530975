"""The exact top-K: candidates are scored by `similarity`, with a proof that no document left out belongs to it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.top_k import Scorer, TopK
from taugate.retrieval.vectors.similarity import Float32

# Candidates beyond K, so that FAISS's own rounding cannot push a document of the top-K out of them.
SPARE = 16
# Above so many candidates for one query, every document is scored instead: a corpus of copies of one text.
MOST_CANDIDATES = 1024
_BLOCK = 4096  # documents scored at a time where all of them are

# Proposes candidates: of (n, d) queries and a count c, rough scores and positions, (n, c) each, best first.
Propose = Callable[[Float32, int], tuple[Float32, NDArray[np.int64]]]


def exact_top_k(
    index: Scorer, propose: Propose, bound: float, queries: Float32, k: int, members: NDArray[np.int64] | None = None
) -> TopK:
    """Return the min(k, M) most similar documents of each query; ties go to the lower position.

    Candidates are fetched and scored until the K-th score is out of reach of every document that was not fetched, or
    until so many are needed that scoring all documents is cheaper.

    index: scores documents. propose: fetches candidates from among the members, with rough scores. bound: the largest
    difference between a rough score and the similarity. queries: (n, d) float32 of unit length. k: how many. members:
    (M,) int64 ascending positions of the documents that count, M ≥ 1; None for all.
    """
    count = len(index) if members is None else len(members)
    k = min(k, count)
    scores = np.empty((len(queries), k), dtype=np.float32)
    positions = np.empty((len(queries), k), dtype=np.int64)
    pending = np.arange(len(queries))
    fetch = k + SPARE
    while len(pending) and fetch <= max(MOST_CANDIDATES, k + SPARE):
        fetch = min(fetch, count)
        rough, candidates = propose(queries[pending], fetch)
        top, _ = rerank(index, queries[pending], candidates, k)
        scores[pending], positions[pending] = top.scores, top.positions
        proven = rough[:, -1] + bound < top.scores[:, -1] if fetch < count else np.full(len(pending), True)
        pending = pending[~proven]
        fetch *= 4
    for row in pending:
        scores[row], positions[row] = brute_force_top_k(index, queries[row : row + 1], k, members)
    return TopK(scores, positions)


def rerank(index: Scorer, queries: Float32, candidates: NDArray[np.int64], k: int) -> tuple[TopK, Float32]:
    """Return the k most similar of each query's candidates, and the lowest similarity among them, (n,) float32.

    index: scores documents. queries: (n, d) float32. candidates: (n, c ≥ k) int64 positions; −1 stands for none, and
    scores −∞. k: how many.
    """
    candidates = np.sort(candidates, axis=1)  # by position, so that a stable sort by score keeps the lower one of a tie
    exact = index.score(queries, np.maximum(candidates, 0))
    exact[candidates < 0] = -np.inf
    order = np.argsort(-exact, axis=1, kind="stable")[:, :k]
    rows = np.arange(len(candidates))[:, None]
    top = TopK(exact[rows, order], candidates[rows, order])
    return top, exact.min(axis=1)


def brute_force_top_k(
    index: Scorer, query: Float32, k: int, members: NDArray[np.int64] | None = None
) -> tuple[Float32, NDArray[np.int64]]:
    """Return scores and positions of one query's top-K, (min(k, M),) each, by scoring every member.

    index: scores documents. query: (1, d) float32. k: how many. members: (M,) int64 ascending positions of the
    documents that count; None for all.
    """
    members = np.arange(len(index)) if members is None else members
    parts = np.array_split(members, len(members) // _BLOCK + 1)
    scores = np.concatenate([index.score(query, part[None])[0] for part in parts])
    best = np.argsort(-scores, kind="stable")[:k]
    return scores[best], members[best]
