"""Requests more candidates while a document that was not proposed may belong among the k best."""

from collections.abc import Callable

import numpy as np

from taugate.retrieval.index.flat import MAX_CANDIDATES
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.vectors.similarity import Float32

# Called with (n, d) queries, k and the number of candidates to fetch. Returns the k best candidates of every query, and
# the lowest similarity among all candidates of each query, (n,) float32. A missing candidate scores −∞.
Best = Callable[[Float32, int, int], tuple[TopK, Float32]]


def widened_top_k(best: Best, queries: Float32, k: int, fetch: int, count: int) -> TopK:
    """Return the k best candidates of every query; ties go to the lower position.

    If the k-th score equals that of the last candidate, another document may tie with it; if there are fewer than k
    candidates, some are missing. Such queries are repeated with four times as many candidates, up to MAX_CANDIDATES. A
    query that still has fewer than k results has a score of −∞ in its last place.

    Args:
        best: Proposes candidates and ranks them.
        queries: (n, d) float32 of unit length.
        k: Number of documents per query, at most `count`.
        fetch: Number of candidates in the first request, at least k.
        count: Number of documents in the index.
    """
    scores = np.empty((len(queries), k), dtype=np.float32)
    positions = np.empty((len(queries), k), dtype=np.int64)
    pending = np.arange(len(queries))
    max_fetch = max(MAX_CANDIDATES, fetch)
    while len(pending) and fetch <= max_fetch:
        top, lowest = best(queries[pending], k, min(fetch, count))
        scores[pending], positions[pending] = top.scores, top.positions
        last = top.scores[:, -1]
        may_tie, missing = (lowest == last) & (fetch < count), np.isneginf(last)
        pending = pending[may_tie | missing]
        fetch *= 4
    return TopK(scores, positions)
