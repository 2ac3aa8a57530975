"""Searches for documents that are stored as several passages; the best passage represents its document.

A list of passages, best first, contains its documents in the order of their best passages. A grouped search keeps only
the first passage of every document, so it only has to determine how long the list must be.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import QueryVectors
from taugate.retrieval.index.flat import MAX_CANDIDATES, brute_force_top_k
from taugate.retrieval.index.top_k import DocumentSubset, Index, Parents, TopK, count_documents, first_of_each

# Passages per document in the first search; with fewer, most queries are searched twice.
_PASSAGES = 4


@dataclass(frozen=True)
class DocumentSearch:
    """Searches for passages until enough documents are found."""

    index: Index
    parents: Parents  # (N,) as in DocumentStore.parents
    within: DocumentSubset | None = None  # passages to search; None for all

    def search(self, queries: QueryVectors, depth: int, documents: int) -> Iterator[tuple[NDArray[np.int64], TopK]]:
        """Search for passages of a number of documents, or of all documents if there are fewer.

        Yields rows of `queries`, (m,) int64, with their passages, `depth` or more if there are so many; every row once.
        """
        # The list grows fourfold at a time. Beyond MAX_CANDIDATES passages, every passage is scored instead, so a
        # corpus of a few long books costs at most one pass, and an approximate index misses none of its documents.
        members = None if self.within is None else self.within.positions
        needed = min(documents, count_documents(self.parents, members))
        pending = np.arange(len(queries))
        width = max(depth, _PASSAGES * documents)
        max_width = max(MAX_CANDIDATES, width)
        while len(pending) and width <= max_width:
            top = self._top_k(queries[pending], width)
            counts = np.array([len(np.unique(self.parents[row])) for row in top.positions])
            enough = (counts >= needed) | (top.positions.shape[1] < width)
            if enough.any():
                yield pending[enough], TopK(top.scores[enough], top.positions[enough])
            pending = pending[~enough]
            width *= 4
        for row in pending.tolist():
            scores, positions = brute_force_top_k(self.index, queries[row : row + 1], len(self.index), members)
            used = max(depth, int(first_of_each(self.parents, positions)[needed - 1]) + 1)
            yield np.array([row]), TopK(scores[None, :used], positions[None, :used])

    def _top_k(self, queries: QueryVectors, k: int) -> TopK:
        return (
            self.index.search(queries, k) if self.within is None else self.index.search_within(queries, k, self.within)
        )
