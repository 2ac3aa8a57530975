"""A base for the engine of a small corpus: a store of rows of bytes, whose collections are searched in this process."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from taugate.errors import EngineUnavailable, ReleaseError, TaugateError
from taugate.policy.arrays import Float32
from taugate.release.engine import PREFIX, EngineKind, GraphParameters
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.metadata import holds
from taugate.retrieval.documents.store import Document, write_document
from taugate.retrieval.engines.engine import (
    Candidates,
    CollectionState,
    Positions,
    Rows,
    check_dimension,
    check_name,
    missing_rows,
    no_such_collection,
    stored_document,
)
from taugate.retrieval.engines.filters import check_comparable, filterable

_STATE, _FINISHED = -1, -2  # rows beside those of documents, whose numbers are positions
_Result = TypeVar("_Result")


class _State(BaseModel):
    dimension: int
    created: float


class RowStore(ABC):
    """An engine over a store that can only keep bytes; implements Engine.

    A subclass sets `kind`, and reads and writes rows, from any thread. A collection is read once, when it is opened,
    and then takes the memory of its vectors and documents. Whatever a subclass raises, other than a TaugateError,
    counts as a store that does not respond.

    Attributes:
        exact: Whether the search is exact: always.
    """

    kind: EngineKind
    exact = True

    @abstractmethod
    def write(self, collection: str, rows: Mapping[int, bytes]) -> None:
        """Add rows by number, or replace those of the same numbers; a corpus arrives in several calls."""

    @abstractmethod
    def read(self, collection: str) -> Mapping[int, bytes]:
        """Return all rows of a collection by number; none if there is no such collection."""

    @abstractmethod
    def remove(self, collection: str) -> None:
        """Remove a collection if it exists."""

    @abstractmethod
    def collections(self) -> Iterable[str]:
        """Return the names of all collections."""

    def create(self, name: str, dimension: int, deadline: float) -> None:
        """See Engine.create."""
        if check_name(name) in self.names(deadline):
            raise ReleaseError(f"the engine already has a collection {name}; drop it to upload it again")
        state = _State(dimension=dimension, created=time.time()).model_dump_json().encode()
        self._call(lambda: self.write(name, {_STATE: state}))

    def upload(self, name: str, first: int, shard: Rows, deadline: float) -> None:
        """See Engine.upload."""
        rows = dict(enumerate(map(_row, shard.vectors, shard.documents), first))
        self._call(lambda: self.write(check_name(name), rows))

    def finish(self, name: str, graph: GraphParameters, deadline: float) -> None:
        """See Engine.finish; there is no index to build."""
        self._call(lambda: self.write(check_name(name), {_FINISHED: b"finished"}))

    def drop(self, name: str, deadline: float) -> None:
        """See Engine.drop."""
        self._call(lambda: self.remove(check_name(name)))

    def names(self, deadline: float) -> list[str]:
        """See Engine.names."""
        return sorted(name for name in self._call(self.collections) if name.startswith(PREFIX))

    def created(self, name: str, deadline: float) -> float | None:
        """See Engine.created."""
        rows = self._call(lambda: self.read(check_name(name)))
        return _state(name, rows).created if _STATE in rows else None

    def collection(self, name: str, breadth: int, deadline: float) -> "RowCollection":
        """See Engine.collection; every search compares all vectors, whatever its breadth."""
        rows = {**self._call(lambda: self.read(check_name(name)))}
        if _STATE not in rows:
            raise no_such_collection(name)
        dimension, built = _state(name, rows).dimension, rows.pop(_FINISHED, None) is not None
        del rows[_STATE]
        vectors, documents = np.empty((len(rows), dimension), np.float32), []
        for position, (_, row) in enumerate(sorted(rows.items())):
            documents.append(stored_document(name, position, row[4 * dimension :]))
            vectors[position] = np.frombuffer(row, "<f4", dimension)
        return RowCollection(name, vectors, documents, built=built)

    def _call(self, call: Callable[[], _Result]) -> _Result:
        try:
            return call()
        except TaugateError:
            raise
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise EngineUnavailable(
                f"the engine {self.kind} does not respond ({reason}); check that it is running and reachable"
            ) from error


def _state(name: str, rows: Mapping[int, bytes]) -> _State:
    try:
        return _State.model_validate_json(rows[_STATE])
    except ValidationError as error:
        raise ReleaseError(f"{name}: its first row is damaged; upload the collection again") from error


def _row(vector: Float32, document: Document) -> bytes:
    filterable(document)  # as with any engine, the document is refused if filters cannot compare one of its values
    return np.ascontiguousarray(vector, dtype="<f4").tobytes() + write_document(document)


class RowCollection:
    """A collection of a RowStore as it was when it was opened; implements Collection.

    Args:
        vectors: (N, d) float32.
        built: Whether its upload was finished.
    """

    def __init__(self, name: str, vectors: Float32, documents: list[Document], *, built: bool) -> None:
        self.name, self.dimension = name, vectors.shape[1]
        self._vectors, self._documents, self._built = vectors, documents, built

    def propose(self, queries: Float32, count: int, query_filter: Filter, deadline: float) -> Candidates:
        """See Collection.propose."""
        check_dimension(self.name, queries, self.dimension)
        cosines = queries @ self._vectors.T
        if query_filter:
            cosines[:, ~self._meets(query_filter)] = -np.inf
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
        best[np.isneginf(np.take_along_axis(cosines, best, axis=1))] = -1
        positions = np.full((len(queries), count), -1, dtype=np.int64)
        positions[:, : best.shape[1]] = best
        vectors = np.zeros((len(queries), count, self.dimension), dtype=np.float32)
        vectors[positions >= 0] = self._vectors[positions[positions >= 0]]
        documents = {position: self._documents[position] for position in np.unique(best).tolist() if position >= 0}
        return Candidates(positions, vectors, documents)

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """See Collection.fetch."""
        if missing := [position for position in positions.tolist() if not 0 <= position < len(self._documents)]:
            raise missing_rows(self.name, missing)
        return Rows(self._vectors[positions], [self._documents[position] for position in positions.tolist()])

    def where(self, query_filter: Filter, limit: int, deadline: float, among: Positions | None = None) -> Positions:
        """See Collection.where."""
        met = np.flatnonzero(self._meets(query_filter))
        return (met if among is None else np.intersect1d(met, among))[:limit]

    def find(self, document_id: str, deadline: float) -> Positions:
        """See Collection.find."""
        passage = [position for position, document in enumerate(self._documents) if document.id == document_id][:1]
        chunks = [position for position, document in enumerate(self._documents) if document.parent == document_id]
        return np.array(passage or chunks, dtype=np.int64)

    def state(self, deadline: float) -> CollectionState:
        """See Collection.state."""
        return CollectionState(self.dimension, len(self._documents), self._built, pending=0, loaded=True)

    def _meets(self, query_filter: Filter) -> NDArray[np.bool_]:
        check_comparable(query_filter)
        met = (holds(query_filter, document.metadata) for document in self._documents)
        return np.fromiter(met, dtype=np.bool_, count=len(self._documents))
