"""How much of an approximate index a query looks at: as little as finds nearly all that exact search finds.

Chosen on the calibration queries without their labels; the gate then judges, with them, what it does to the results.
"""

import numpy as np
from numpy.typing import NDArray

from retrieval.index.approximate import ApproximateIndex
from retrieval.index.topk import Index
from retrieval.similarity import Float32

# Share of the exact top-K to find: what is missed is mostly irrelevant, so that accuracy loses less than 1 − recall.
RECALL = 0.99
_FIRST, _MOST = {"hnsw": 32, "ivf-flat": 4, "ivf-pq": 4}, {"hnsw": 1024, "ivf-flat": 1024, "ivf-pq": 1024}


def recall(index: Index, queries: Float32, exact: NDArray[np.int64]) -> float:
    """Mean share of the exact top-K, (q, K) positions, that `index` finds."""
    found = index.search(queries, exact.shape[1]).positions
    hits = (found[:, :, None] == exact[:, None, :]).any(axis=1)
    return float(hits.mean())


def set_breadth(index: ApproximateIndex, queries: Float32, exact: NDArray[np.int64]) -> None:
    """The first of doubling breadths with the recall wanted, the widest where none has it."""
    index.breadth = _FIRST[index.kind]
    while recall(index, queries, exact) < RECALL and index.breadth * 2 <= _MOST[index.kind]:
        index.breadth *= 2
