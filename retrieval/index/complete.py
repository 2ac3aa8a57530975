"""The exact top-K from candidates, and the proof that no document left out belongs to it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.ranking import among, ranked
from taugate.retrieval.index.topk import MOST_CANDIDATES, SPARE, Scored, TopK
from taugate.retrieval.vectors.similarity import Float32

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
