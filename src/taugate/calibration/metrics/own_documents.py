"""Searches that leave a query out of its own results, in data sets whose queries are documents of the corpus.

`own`, which every function takes, has for each of q queries the positions of the passages that the query itself is
(`LabelledQuery.own`): none, unless the corpus holds the query under the same id.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.index.top_k import Searchable, TopK
from taugate.retrieval.vectors.similarity import Float32

Own = Sequence[tuple[int, ...]]
Positions = NDArray[np.int64]


def own_of(queries: Iterable[LabelledQuery]) -> Own:
    """Return the passages that each query is itself."""
    return [query.own for query in queries]


def max_own(own: Own) -> int:
    """Return how many passages more a search has to find, so that enough are left of every query."""
    return max(map(len, own), default=0)


def search_others(index: Searchable, own: Own, vectors: Float32, k: int) -> TopK:
    """Search every query for passages other than itself; the result is that of a plain search if there are none.

    Args:
        index: Of N passages.
        vectors: (q, d) float32.
        k: Results of each.

    Returns:
        (q, min(k, N - `max_own`)) results.
    """
    return others_of(own, index.search(vectors, k + max_own(own)))


def others_of(own: Own, top: TopK) -> TopK:
    """Leave each query out of its own results.

    Args:
        top: (q, c). Returns (q, c - `max_own`).
    """
    if not max_own(own):
        return top
    order = _others_first(own, top.positions)
    return TopK(np.take_along_axis(top.scores, order, axis=1), np.take_along_axis(top.positions, order, axis=1))


def other_positions(own: Own, positions: Positions) -> Positions:
    """Leave each query out of its own results.

    Args:
        positions: (q, c). Returns (q, c - `max_own`).
    """
    return np.take_along_axis(positions, _others_first(own, positions), axis=1) if max_own(own) else positions


def _others_first(own: Own, positions: Positions) -> Positions:
    """Return the columns of other passages, in their order; (q, c - `max_own`)."""
    mine = np.zeros(positions.shape, dtype=np.bool_)
    for row, passages in enumerate(own):
        if passages:
            mine[row] = np.isin(positions[row], passages)
    return np.argsort(mine, axis=1, kind="stable")[:, : positions.shape[1] - max_own(own)]
