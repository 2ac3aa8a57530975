"""What a retriever searches: passages in this process, or, through the same port, passages in an engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.vectors.similarity import Float32

Observe = Callable[[str, float], None]  # receives the name of a stage and its seconds, as it ends


def unobserved(stage: str, seconds: float) -> None:
    """Drop stage times that nobody asks for."""


@dataclass(frozen=True)
class Candidate:
    """A passage that came with a search: its vector, (d,) float32, and what is stored of it."""

    vector: Float32
    document: Document


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        top: Scores and positions, best first.
        candidates: By position, all of `top` and others, where the search brought their contents; empty where these are
            in this process.
        approximate: Whether a filter was met in a graph that may miss passages, which a search within a filter
            otherwise does not.
    """

    top: TopK
    candidates: Mapping[int, Candidate] = field(default_factory=dict)
    approximate: bool = False


class Fields(Protocol):
    """The metadata fields of a corpus, as filters name them."""

    def check(self, wanted: Filter) -> None:
        """Raise InputError where a filter names a field that no passage has, or compares one as it cannot be."""
        ...

    def check_kinds(self, wanted: Filter) -> None:
        """Raise InputError as `check`, and where a filter compares a field with a kind of value that it never has."""
        ...


class Passages(Fields, Protocol):
    """N passages that a query finds by similarity, among all or within a filter."""

    @property
    def remote(self) -> bool:
        """Whether they are in an engine, which is asked for each search."""
        ...

    def find(self, queries: Float32, k: int, wanted: Filter, observe: Observe = unobserved) -> Found:
        """Return the min(k, M) most similar of the M passages that meet a filter; ties go to the lower position.

        Args:
            queries: (n, d) float32 of unit length.
            k: How many.
            wanted: The filter; empty for all passages.
            observe: Receives the stages of an engine.

        Raises:
            InputError: For a field that no passage has.
        """
        ...

    def meets(self, wanted: Filter, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of a few passages meet a filter, (m,) bool.

        Args:
            positions: (m,) int64. Raises as `find`.
        """
        ...


@dataclass(frozen=True)
class LocalPassages:
    """Passages in this process; a filter is looked up in their metadata, and what it leaves is searched exactly.

    Attributes:
        index: Of their vectors.
        metadata: Of the passages.
    """

    index: Index
    metadata: Metadata
    remote: bool = False

    def find(self, queries: Float32, k: int, wanted: Filter, observe: Observe = unobserved) -> Found:
        """See Passages.find."""
        if not wanted:
            return Found(self.index.search(queries, k))
        return Found(self.index.search_within(queries, k, DocumentSubset(self.metadata.where(wanted))))

    def meets(self, wanted: Filter, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See Passages.meets."""
        return self.metadata.where(wanted)[positions] if wanted else np.ones(len(positions), dtype=np.bool_)

    def check(self, wanted: Filter) -> None:
        """See Fields.check."""
        self.metadata.check(wanted)

    def check_kinds(self, wanted: Filter) -> None:
        """See Fields.check_kinds."""
        self.metadata.check_kinds(wanted)
