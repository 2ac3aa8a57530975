"""Divides a corpus into three parts: documents to learn from, to choose by, and unseen documents for the decision.

Documents are not divided: all chunks of a parent are in one part, and so are all documents that answer the same query.
"""

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.ranking import Parents

TRAIN, VALIDATION, UNSEEN = 0, 1, 2
# Most documents give pairs, and enough remain for the gate to show a gain of three points on about a hundred of them.
_SHARES = (0.5, 0.15, 0.35)
_STREAM = 2  # random stream of the seed, different from those of evidence/divisions.py


@dataclass(frozen=True)
class CorpusParts:
    """The part of each passage.

    Attributes:
        part: (N,) int64, TRAIN, VALIDATION or UNSEEN.
    """

    part: NDArray[np.int64]

    @classmethod
    def divide(
        cls,
        passages: int,
        parents: Parents,
        train: Sequence[LabelledQuery],
        evaluation: Sequence[LabelledQuery],
        seed: int,
    ) -> Self:
        """Split a corpus at random into three parts.

        Documents that answer only training queries are for learning or choosing; those that answer only evaluation
        queries are unseen. Documents that answer both or neither are divided; with the same queries for both, that is
        every document. Without training queries, documents with evaluation queries are the first unseen ones.

        Args:
            train: Labelled queries to learn from, empty if crops are used.
        """
        groups = _groups(passages, parents, [*train, *evaluation])
        trains, evaluates = (_queries_of(groups, queries) for queries in (train, evaluation))
        order = np.random.default_rng([seed, _STREAM]).permutation(len(trains))
        sizes = np.bincount(groups, minlength=len(trains))
        role = np.empty(len(trains), dtype=np.int64)
        if not len(train):
            order = order[np.argsort(evaluates[order] == 0, kind="stable")]  # documents with queries first
            reach = np.cumsum(sizes[order]) / passages
            role[order] = np.select(
                [reach <= _SHARES[UNSEEN], reach <= _SHARES[UNSEEN] + _SHARES[VALIDATION]], [2, 1], 0
            )
            return cls(role[groups])
        for mask, shares in (
            ((trains > 0) & (evaluates == 0), (_SHARES[0] / sum(_SHARES[:2]), _SHARES[1] / sum(_SHARES[:2]), 0.0)),
            ((trains == 0) & (evaluates > 0), (0.0, 0.0, 1.0)),
            ((trains > 0) & (evaluates > 0), _SHARES),
            ((trains == 0) & (evaluates == 0), _SHARES),
        ):
            members = order[mask[order]]
            weights = np.maximum(trains, evaluates)[members] if trains[members].any() else sizes[members]
            reach = (np.cumsum(weights) - weights / 2) / max(1, weights.sum())
            role[members] = np.searchsorted(np.cumsum(shares)[:2], reach, side="right")
        return cls(role[groups])

    def passages(self, part: int) -> NDArray[np.int64]:
        """Return the positions of the passages in a part, ascending."""
        return np.flatnonzero(self.part == part)

    def queries(self, part: int, queries: Collection[LabelledQuery]) -> list[LabelledQuery]:
        """Return the queries whose documents are all in a part."""
        return [query for query in queries if (self.part[list(query.relevant)] == part).all()]

    def of_unanswerable(self, query: LabelledQuery, seed: int) -> int | None:
        """Return the part of a query without an answer: that of the documents that it was judged against.

        None if these are in several parts. A query without any is assigned by its id and the seed.
        """
        if not query.judged:
            share = np.random.default_rng([seed, _STREAM, zlib.crc32(query.id.encode())]).random()
            return int(np.searchsorted(np.cumsum(_SHARES)[:2], share, side="right"))
        judged = {int(part) for part in self.part[list(query.judged)]}
        return judged.pop() if len(judged) == 1 else None


def _groups(passages: int, parents: Parents, queries: Sequence[LabelledQuery]) -> NDArray[np.int64]:
    """Assign each passage to a group that must not be divided, (N,)."""
    owners = np.repeat(np.arange(len(queries)), [len(query.relevant) for query in queries])
    answers = np.array([position for query in queries for position in query.relevant], dtype=np.int64)
    chunks = np.arange(passages)
    ends = chunks if parents is None else parents
    rows, columns = np.concatenate([chunks, answers]), np.concatenate([ends, passages + owners])
    nodes = passages + len(queries)
    edges = coo_array((np.ones(len(rows)), (rows, columns)), shape=(nodes, nodes))
    components = connected_components(edges, directed=False)[1]
    return np.unique(components[:passages], return_inverse=True)[1].astype(np.int64)


def _queries_of(groups: NDArray[np.int64], queries: Sequence[LabelledQuery]) -> NDArray[np.int64]:
    """Count the queries of each group."""
    query_groups = groups[[next(iter(query.relevant)) for query in queries]] if queries else groups[:0]
    return np.bincount(query_groups, minlength=int(groups.max()) + 1)
