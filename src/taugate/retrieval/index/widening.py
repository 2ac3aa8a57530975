"""Asking for more candidates while a document that was not proposed may belong among the k best."""

from collections.abc import Callable

import numpy as np

from taugate.retrieval.index.flat import MAX_CANDIDATES
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.vectors.similarity import Float32

# Of (n, d) queries, k and a number of candidates: the k best candidates of each query, and the lowest similarity among
# all of its candidates, (n,) float32. A place without a candidate scores −∞.
Best = Callable[[Float32, int, int], tuple[TopK, Float32]]


def widened_top_k(best: Best, queries: Float32, k: int, fetch: int, count: int) -> TopK:
    """Return the k best of what is proposed for each query; ties go to the lower position.

    Where the k-th score is that of the last candidate, another document may tie with it; where fewer than k were found,
    others are missing. Both are asked for again, four times as wide, up to MAX_CANDIDATES.

    Args:
        best: Proposes candidates and ranks them.
        queries: (n, d) float32 of unit length.
        k: How many, at most `count`.
        fetch: How many candidates to begin with, at least k.
        count: Of documents there are. A query for which fewer than k were found even so has a score of −∞ in its last
            place.
    """
    scores = np.empty((len(queries), k), dtype=np.float32)
    positions = np.empty((len(queries), k), dtype=np.int64)
    pending = np.arange(len(queries))
    most = max(MAX_CANDIDATES, fetch)
    while len(pending) and fetch <= most:
        top, lowest = best(queries[pending], k, min(fetch, count))
        scores[pending], positions[pending] = top.scores, top.positions
        last = top.scores[:, -1]
        others_may_tie, missing = (lowest == last) & (fetch < count), np.isneginf(last)
        pending = pending[others_may_tie | missing]
        fetch *= 4
    return TopK(scores, positions)
