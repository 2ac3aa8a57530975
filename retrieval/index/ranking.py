"""From candidates to the top-K, by the one definition of similarity and with ties to the lower position."""

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.topk import Scored, TopK
from taugate.retrieval.vectors.similarity import Float32

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
