"""The corpus of a release whose vectors and documents are in an engine: searched, filtered and read through it."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.field_types import FieldTypes
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.metadata import holds
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines.connect import engine_from_environment
from taugate.retrieval.engines.engine import Collection, Engine, EngineKind
from taugate.retrieval.engines.filters import check_comparable
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.engines.verify import open_verified
from taugate.retrieval.index.passages import Found, Observe, unobserved
from taugate.retrieval.vectors.similarity import Float32

_BLOCK = 1024  # documents that are read at a time where all of them are


class Watched(Collection, Protocol):
    """A collection that somebody watches, who knows whether it answers."""

    def check(self) -> None:
        """Raise EngineUnavailable where it is known not to answer; asks nothing."""
        ...

    def close(self) -> None:
        """Watch no longer; a second time does nothing."""
        ...


@dataclass(frozen=True)
class EngineAccess:
    """How a release reaches its engine.

    Attributes:
        connect: Makes the engine of a kind.
        opening: Seconds that checking the collection may take.
        seconds: Of one question afterwards.
        watch: Stands between the release and the collection, once that was checked; None for nobody.
    """

    connect: Callable[[EngineKind], Engine] = engine_from_environment
    opening: float = 120.0
    seconds: float = 30.0
    watch: Callable[[EngineRecord, Collection], Watched] | None = None


@dataclass(frozen=True)
class EnginePassages:
    """The passages of a collection; a Passages.

    Attributes:
        index: Searches it.
        fields: The metadata fields that filters can name.
    """

    index: EngineIndex
    fields: FieldTypes
    remote: bool = True

    def find(self, queries: Float32, k: int, wanted: Filter, observe: Observe = unobserved) -> Found:
        """See Passages.find, and EngineIndex.find for what is approximate and for other errors."""
        self.check(wanted)
        return self.index.find(queries, k, wanted, observe)

    def meets(self, wanted: Filter, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See Passages.meets; reads the passages."""
        self.check(wanted)
        documents = self.index.read(positions).documents if wanted else [None] * len(positions)
        return np.array([each is None or holds(wanted, each.metadata) for each in documents], dtype=np.bool_)

    def check(self, wanted: Filter) -> None:
        """See Fields.check; also raises InputError for a value that no engine can compare exactly."""
        self.fields.check(wanted)
        check_comparable(wanted)

    def check_kinds(self, wanted: Filter) -> None:
        """See Fields.check_kinds; also raises InputError as `check`."""
        self.fields.check_kinds(wanted)
        check_comparable(wanted)


class EngineDocuments(Sequence[Document]):
    """The documents of a collection, by position; a Documents.

    Attributes:
        index: Reads the collection.
    """

    parents = None  # which chunks belong together is not known here

    def __init__(self, index: EngineIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, position: int) -> Document:  # type: ignore[override]  # no slices: a reader names positions
        """Return the document at a position.

        Raises:
            IndexError: .
            EngineUnavailable: .
            ReleaseError: .
        """
        if not 0 <= position < len(self):
            raise IndexError(position)
        return self.at(np.array([position]))[0]

    def __iter__(self) -> Iterator[Document]:
        for start in range(0, len(self), _BLOCK):
            yield from self.at(np.arange(start, min(start + _BLOCK, len(self))))

    def at(self, positions: NDArray[np.int64]) -> list[Document]:
        """See Documents.at; one question."""
        distinct, places = np.unique(positions, return_inverse=True)
        documents = self._index.read(distinct).documents if len(distinct) else []
        return [documents[place] for place in places.tolist()]

    def positions(self, document_id: str) -> NDArray[np.int64]:
        """See Documents.positions."""
        return self._index.find_id(document_id)


@dataclass(frozen=True)
class EngineCorpus:
    """A collection that was checked, and what a release makes of it.

    Attributes:
        index: Of the collection.
        passages: Of the collection.
        documents: Of the collection.
        watched: The collection, where somebody watches it.
    """

    index: EngineIndex
    passages: EnginePassages
    documents: EngineDocuments
    watched: Watched | None

    def check(self) -> None:
        """Raise EngineUnavailable where the collection is watched and known not to answer."""
        if self.watched is not None:
            self.watched.check()

    def close(self) -> None:
        """Have the collection watched no longer; a second time does nothing."""
        if self.watched is not None:
            self.watched.close()


def open_corpus(record: EngineRecord, dimension: int, access: EngineAccess) -> EngineCorpus:
    """Connect to the engine of a release, and check its collection.

    Args:
        record: Of the release.
        dimension: Of the vectors that are searched.
        access: How to reach the engine.

    Raises:
        InputError: Where no engine is named, ReleaseError with the first difference, and EngineUnavailable.
    """
    engine = access.connect(record.kind)
    verified = open_verified(engine, record, dimension, time.monotonic() + access.opening)
    watched = None if access.watch is None else access.watch(record, verified)
    index = EngineIndex(verified if watched is None else watched, record.rows, access.seconds)
    return EngineCorpus(index, EnginePassages(index, record.fields), EngineDocuments(index), watched)
