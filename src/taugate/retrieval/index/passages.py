"""The interface of searchable passages, and passages in this process; engines/corpus.py has those in an engine."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.vectors.queries import QueryVectors

# Called with the name of a finished stage, and the readings of time.perf_counter() at its begin and its end.
Observe = Callable[[str, float, float], None]


def unobserved(stage: str, began: float, ended: float) -> None:
    """Discard stage times."""


class Fields(Protocol):
    """The metadata fields of a corpus, as filters name them."""

    def check(self, query_filter: Filter) -> None:
        """Raise InputError if a filter names a field that no passage has, or compares a field in an impossible way."""
        ...

    def check_kinds(self, query_filter: Filter) -> None:
        """Raise InputError like `check`, and if a filter compares a field with a kind of value that it never has."""
        ...


class Passages(Fields, Protocol):
    """N passages that a query finds by similarity, among all or within a filter."""

    @property
    def remote(self) -> bool:
        """Whether they are in an engine, which runs every search."""
        ...

    def find(self, queries: QueryVectors, k: int, query_filter: Filter, observe: Observe = unobserved) -> TopK:
        """Return the min(k, M) most similar of the M passages that meet a filter; ties go to the lower position.

        Args:
            queries: n queries, (n, d) of unit length.
            k: Number of passages per query.
            query_filter: Filter; empty for all passages.
            observe: Receives the stages of an engine.

        Raises:
            InputError: If the filter names a field that no passage has.
        """
        ...

    def meets(self, query_filter: Filter, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the passages at m positions, int64, meet a filter, (m,) bool; raises like `find`."""
        ...


@dataclass(frozen=True)
class LocalPassages:
    """Passages in this process; filters are evaluated on their metadata, and filtered searches are exact.

    Attributes:
        index: Index of the vectors.
        metadata: Metadata of the passages.
    """

    index: Index
    metadata: Metadata
    remote: bool = False

    def find(self, queries: QueryVectors, k: int, query_filter: Filter, observe: Observe = unobserved) -> TopK:
        """See Passages.find."""
        if not query_filter:
            return self.index.search(queries, k)
        return self.index.search_within(queries, k, DocumentSubset(self.metadata.where(query_filter)))

    def meets(self, query_filter: Filter, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See Passages.meets."""
        return self.metadata.where(query_filter)[positions] if query_filter else np.ones(len(positions), dtype=np.bool_)

    def check(self, query_filter: Filter) -> None:
        """See Fields.check."""
        self.metadata.check(query_filter)

    def check_kinds(self, query_filter: Filter) -> None:
        """See Fields.check_kinds."""
        self.metadata.check_kinds(query_filter)
