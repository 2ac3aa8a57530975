"""Searches, filters and reads the corpus of a release whose vectors and documents are in an engine."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.field_types import FieldTypes
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.metadata import holds
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines.access import EngineAccess, MonitoredCollection
from taugate.retrieval.engines.filters import check_comparable
from taugate.retrieval.engines.hybrid import EngineHybridIndex
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.engines.verify import open_verified
from taugate.retrieval.index.passages import Observe, unobserved
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.vectors.queries import QueryVectors

_BLOCK = 1024  # documents read at a time when iterating over all


@dataclass(frozen=True)
class EnginePassages:
    """The passages of a collection; implements Passages.

    Attributes:
        index: Searches and reads the collection.
        fields: Metadata fields that filters can name.
        hybrid: Searches by a score with a lexical part; None if the score has none.
    """

    index: EngineIndex
    fields: FieldTypes
    hybrid: EngineHybridIndex | None = None
    remote: bool = True

    def find(self, queries: QueryVectors, k: int, query_filter: Filter, observe: Observe = unobserved) -> TopK:
        """See Passages.find; EngineIndex.find says when results are approximate and which other errors occur."""
        self.check(query_filter)
        index = self.index if self.hybrid is None else self.hybrid
        return index.find(queries, k, query_filter, observe)

    def meets(self, query_filter: Filter, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See Passages.meets; reads the passages."""
        self.check(query_filter)
        documents = self.index.read(positions).documents if query_filter else [None] * len(positions)
        met = [document is None or holds(query_filter, document.metadata) for document in documents]
        return np.array(met, dtype=np.bool_)

    def check(self, query_filter: Filter) -> None:
        """See Fields.check; also raises InputError if an engine cannot compare a value exactly."""
        self.fields.check(query_filter)
        check_comparable(query_filter)

    def check_kinds(self, query_filter: Filter) -> None:
        """See Fields.check_kinds; also raises InputError if an engine cannot compare a value exactly."""
        self.fields.check_kinds(query_filter)
        check_comparable(query_filter)


class EngineDocuments(Sequence[Document]):
    """The documents of a collection, by position; implements Documents.

    Attributes:
        index: Reads the collection.
    """

    parents = None  # the engine does not say which chunks belong together

    def __init__(self, index: EngineIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, position: int) -> Document:  # type: ignore[override]  # no slices: a reader names positions
        """Return the document at a position.

        Raises:
            IndexError: If there is no such position.
            EngineUnavailable: If the engine does not respond.
            ReleaseError: If the collection has no document there.
        """
        if not 0 <= position < len(self):
            raise IndexError(position)
        return self.at(np.array([position]))[0]

    def __iter__(self) -> Iterator[Document]:
        for start in range(0, len(self), _BLOCK):
            yield from self.at(np.arange(start, min(start + _BLOCK, len(self))))

    def at(self, positions: NDArray[np.int64]) -> list[Document]:
        """See Documents.at; sends one request."""
        distinct, places = np.unique(positions, return_inverse=True)
        documents = self._index.read(distinct).documents if len(distinct) else []
        return [documents[place] for place in places.tolist()]

    def positions(self, document_id: str) -> NDArray[np.int64]:
        """See Documents.positions."""
        return self._index.find_id(document_id)


@dataclass(frozen=True)
class EngineCorpus:
    """A checked collection and the views of it that a release uses.

    Attributes:
        index: Searches by vector.
        passages: Searches within filters.
        documents: Reads documents.
        watched: The monitored collection; None if it is not monitored.
    """

    index: EngineIndex
    passages: EnginePassages
    documents: EngineDocuments
    watched: MonitoredCollection | None

    def check(self) -> None:
        """Raise EngineUnavailable if the collection is monitored and known not to respond."""
        if self.watched is not None:
            self.watched.check()

    def close(self) -> None:
        """Stop monitoring the collection; a second call does nothing."""
        if self.watched is not None:
            self.watched.close()


def open_corpus(record: EngineRecord, dimension: int, access: EngineAccess) -> EngineCorpus:
    """Connect to the engine of a release and check its collection.

    Args:
        record: Engine record of the release.
        dimension: Dimension of the searched vectors.
        access: How to reach the engine.

    Raises:
        InputError: If no engine is configured.
        ReleaseError: If the collection differs from the record; names the first difference.
        EngineUnavailable: If the engine does not respond.
    """
    engine = access.connect(record.kind)
    verified = open_verified(engine, record, dimension, time.monotonic() + access.opening)
    watched = None if access.watch is None else access.watch(record, verified)
    index = EngineIndex(verified if watched is None else watched, record.rows, access.seconds)
    return EngineCorpus(index, EnginePassages(index, record.fields), EngineDocuments(index), watched)
