"""The result of a search and the interfaces of an index and of searchable passages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, QueryVectors, Ranking
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import Document

Parents = NDArray[np.int32]  # the document of each passage, (N,), as in DocumentStore.parents

# Called with the name of a finished stage, and the readings of time.perf_counter() at its begin and its end.
Observe = Callable[[str, float, float], None]


@dataclass(frozen=True)
class Candidate:
    """A passage returned by a search with its vector, (d,) float32, and its document."""

    vector: Float32
    document: Document


@dataclass(frozen=True)
class TopK(Ranking):
    """The K most similar documents of n queries, best first."""

    # contents of all these documents, and possibly others, by position; empty if the corpus is in this process
    candidates: Mapping[int, Candidate] = field(default_factory=dict)
    # whether a filter was evaluated in a graph that may miss documents; other filtered searches are exact
    approximate: bool = False


class DocumentSubset:
    """Some of the N documents of an index, such as those that meet a filter.

    Attributes:
        positions: (M,) int64 ascending positions of the documents.

    Args:
        mask: (N,) bool, True for documents in the subset.
    """

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self._mask = mask
        self.positions = np.flatnonzero(mask)

    def __len__(self) -> int:
        return len(self.positions)

    def contains(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the documents at m positions are in the subset, (m,) bool."""
        return self._mask[positions]

    @cached_property
    def selector(self) -> Any:  # noqa: ANN401 (faiss has no types)
        """The subset as a selector of FAISS, one bit per document."""
        import faiss  # slow to load, and only searches need it

        return faiss.IDSelectorBitmap(np.packbits(self._mask, bitorder="little"))


class DocumentScorer(Protocol):
    """N documents that a query can be compared with."""

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """Return the scores of query i and the documents at `positions[i]`, (n, c) float32.

        Scores equal those of a search to the bit.

        Args:
            queries: n queries, (n, d) of unit length, with words if the score has a lexical part.
            positions: (n, c) int64.
        """
        ...

    def __len__(self) -> int: ...


class Searchable(DocumentScorer, Protocol):
    """N documents that a query finds by similarity."""

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """Return the min(k, N) most similar documents of each query; ties go to the lower position.

        Args:
            queries: n queries, (n, d) of unit length, with words if the score has a lexical part.
            k: Number of documents per query, at least 1.
        """
        ...


class Index(Searchable, Protocol):
    """N documents that are also searched within a subset."""

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """Return the min(k, M) most similar of M documents, exactly, whatever the kind of index.

        Args:
            queries: n queries, (n, d) of unit length, with words if the score has a lexical part.
            k: Number of documents per query.
            within: Documents to search; may be empty.
        """
        ...

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        ...


def first_of_each(parents: Parents, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places in a list at which a document appears for the first time, (m,) int64, ascending.

    Args:
        parents: (N,) as in DocumentStore.parents.
        positions: (w,) int64 positions of passages, best first.
    """
    _, places = np.unique(parents[positions], return_index=True)
    return np.sort(places)


def count_documents(parents: Parents, positions: NDArray[np.int64] | None = None) -> int:
    """Return how many documents some passages belong to.

    Args:
        parents: (N,) as in DocumentStore.parents.
        positions: (m,) int64 positions of the passages; None for all N.
    """
    seen = np.zeros(len(parents), dtype=np.bool_)
    seen[parents if positions is None else parents[positions]] = True
    return int(np.count_nonzero(seen))


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
        """
        ...

    def meets(self, query_filter: Filter, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the passages at m positions, int64, meet a filter, (m,) bool; raises like `find`."""
        ...
