"""How much of an approximate index a query looks at: as little as finds nearly all that exact search finds.

Chosen on the calibration queries without their labels; the gate then judges, with them, what it does to the results.
"""

import numpy as np

from taugate.retrieval.index.approximate import ApproximateIndex
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.topk import Index, TopK
from taugate.retrieval.vectors.similarity import Float32

# Share of the margin that may be missed of the exact top-K. On mixed_large accuracy@5 loses half of what is missed, so
# that an eighth of the margin is lost and the rest is left for chance (docs/benchmarks/gate.md).
_MISSED = 0.25
_BREADTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def recall(index: Index, flat: FlatIndex, queries: Float32, exact: TopK) -> float:
    """Mean share of the exact top-K that `index` finds; a document as similar as the last of them will do as well."""
    found = index.search(queries, exact.positions.shape[1]).positions
    return float(np.mean(flat.score(queries, found) >= exact.scores[:, -1:]))


def set_breadth(index: ApproximateIndex, flat: FlatIndex, queries: Float32, depth: int, margin: float) -> None:
    """The first of growing breadths with the recall at `depth` that a margin wants, the widest where none has it.

    flat: exact search of the same documents.
    """
    exact = flat.search(queries, depth)
    for breadth in _BREADTHS:
        if breadth >= index.least_breadth(depth):
            index.breadth = breadth
            everything = index.breadth < breadth  # there are no more lists
            if everything or recall(index, flat, queries, exact) >= 1 - _MISSED * margin:
                return
