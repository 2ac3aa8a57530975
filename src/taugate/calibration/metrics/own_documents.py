"""Searches that leave a query out of its own results, in data sets whose queries are documents of the corpus.

The parameter `own_passages` holds for each of q queries the positions of the passages that are the query itself
(`LabelledQuery.own`). It is empty unless the corpus holds the query under the same id.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.index.top_k import Searchable, TopK
from taugate.retrieval.vectors.queries import QueryVectors

OwnPassages = Sequence[tuple[int, ...]]
Positions = NDArray[np.int64]


def own_passages_of(queries: Iterable[LabelledQuery]) -> OwnPassages:
    """Return for each query the passages that are the query itself."""
    return [query.own_passages for query in queries]


def max_own_passages(own_passages: OwnPassages) -> int:
    """Return how many additional passages a search has to find so that enough remain for every query."""
    return max(map(len, own_passages), default=0)


def search_excluding_own(index: Searchable, own_passages: OwnPassages, vectors: QueryVectors, k: int) -> TopK:
    """Search every query for passages other than itself.

    Args:
        index: Index of N passages.
        own_passages: Passages that are the query itself, by query.
        vectors: (q, d) float32.
        k: Number of results per query.

    Returns:
        (q, min(k, N - `max_own_passages`)) results.
    """
    return exclude_own(own_passages, index.search(vectors, k + max_own_passages(own_passages)))


def exclude_own(own_passages: OwnPassages, top: TopK) -> TopK:
    """Leave each query out of its own (q, c) results; (q, c - `max_own_passages`) remain."""
    if not max_own_passages(own_passages):
        return top
    order = _others_first(own_passages, top.positions)
    return TopK(np.take_along_axis(top.scores, order, axis=1), np.take_along_axis(top.positions, order, axis=1))


def positions_excluding_own(own_passages: OwnPassages, positions: Positions) -> Positions:
    """Leave each query out of the (q, c) positions of its own results; (q, c - `max_own_passages`) remain."""
    return (
        np.take_along_axis(positions, _others_first(own_passages, positions), axis=1)
        if max_own_passages(own_passages)
        else positions
    )


def _others_first(own_passages: OwnPassages, positions: Positions) -> Positions:
    """Return the columns of other passages, in their order; (q, c - `max_own_passages`)."""
    is_own = np.zeros(positions.shape, dtype=np.bool_)
    for row, passages in enumerate(own_passages):
        if passages:
            is_own[row] = np.isin(positions[row], passages)
    return np.argsort(is_own, axis=1, kind="stable")[:, : positions.shape[1] - max_own_passages(own_passages)]
