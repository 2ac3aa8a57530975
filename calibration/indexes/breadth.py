"""How much of an approximate index a query looks at: as little as finds nearly all that exact search finds.

Chosen on the calibration queries without their labels; the gate then judges, with them, what it does to the results.
"""

import numpy as np
from numpy.typing import NDArray

from retrieval.index.approximate import ApproximateIndex
from retrieval.index.topk import Index
from retrieval.similarity import Float32

# Share of the margin that may be missed of the exact top-K. On mixed_large accuracy@5 loses half of what is missed, so
# that an eighth of the margin is lost and the rest is left for chance (docs/benchmarks/gate.md).
_MISSED = 0.25
_BREADTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def recall(index: Index, queries: Float32, exact: NDArray[np.int64]) -> float:
    """Mean share of the exact top-K, (q, K) positions, that `index` finds."""
    found = index.search(queries, exact.shape[1]).positions
    hits = (found[:, :, None] == exact[:, None, :]).any(axis=1)
    return float(hits.mean())


def set_breadth(index: ApproximateIndex, queries: Float32, exact: NDArray[np.int64], margin: float) -> None:
    """The first of growing breadths with the recall that a margin wants, the widest where none has it."""
    for breadth in _BREADTHS:
        index.breadth = breadth
        everything = index.breadth < breadth  # there are no more lists
        if everything or recall(index, queries, exact) >= 1 - _MISSED * margin:
            return
