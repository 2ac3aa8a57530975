"""The passages listed for the queries of a batch, and which of these queries are searched together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from taugate.retrieval.documents.filters import Filter, both
from taugate.retrieval.index.passages import FoundPassages
from taugate.retrieval.policy.abstention import AnswerRule
from taugate.retrieval.policy.background import ReadDocuments
from taugate.retrieval.policy.policy import Policy
from taugate.retrieval.query import Query


@dataclass(frozen=True, slots=True)
class SearchGroup:
    """Queries that are searched together: with the same depth, in the same documents.

    Attributes:
        rows: Positions of the queries in the batch.
        depth: Number of passages to search for.
        scope: Filter to search within.
        documents: Number of documents to find passages of; None if results are not grouped.
        policy: The policy that will cut the results.
        rule: Rule that refuses queries; None if none is refused.
    """

    rows: list[int]
    depth: int
    scope: Filter
    documents: int | None
    policy: Policy
    rule: AnswerRule | None


@dataclass(frozen=True, slots=True)
class Listed:
    """The passages listed for some queries of a batch.

    Attributes:
        rows: Positions of the queries in the batch.
        result: The passages, best first, a row for each query.
        policy: The policy that cuts them.
        rule: Rule that refuses queries; None if none is refused.
    """

    rows: list[int]
    result: FoundPassages
    policy: Policy
    rule: AnswerRule | None


def contents_of(search_result: FoundPassages) -> ReadDocuments | None:
    """Return the contents of the results, (n, w), if the search returned them."""
    positions = search_result.top.positions
    if not positions.size or not search_result.candidates:
        return None
    candidates = [search_result.candidates[position] for position in positions.ravel().tolist()]
    vectors = np.stack([candidate.vector for candidate in candidates])
    read = ReadDocuments.of(vectors, [candidate.document for candidate in candidates])
    return ReadDocuments(read.vectors.reshape(*positions.shape, -1), read.lengths.reshape(positions.shape))


def search_groups(
    queries: Sequence[Query], depth: int, policy: Policy, rule: AnswerRule | None, grouped: Callable[[Query], bool]
) -> list[SearchGroup]:
    """Group queries of the same depth and filter, and of the same k if results are grouped by document.

    Each depth is searched separately: an approximate index finds more in a longer list, and a query's results must not
    depend on the other queries of the batch.

    Args:
        queries: The queries of the batch.
        depth: Least depth of a query; another is at least its k.
        policy: Policy of the stage.
        rule: Rule of the stage that refuses queries; None if none is refused.
        grouped: Whether the results of a query are grouped by document.
    """
    rows_of: dict[tuple[int, Filter, Filter, int | None], list[int]] = {}
    for row, query in enumerate(queries):
        documents = query.k if grouped(query) else None
        key = max(depth, query.k), query.permitted, query.filter or (), documents
        rows_of.setdefault(key, []).append(row)
    return [
        SearchGroup(rows, deep, both(permitted, query_filter) if query_filter else permitted, documents, policy, rule)
        for (deep, permitted, query_filter, documents), rows in rows_of.items()
    ]
