"""What Taugate asks of an engine: an external store of vectors and documents that proposes candidates for a query.

An engine never decides: `retrieval.vectors.similarity` scores what it proposes, in `index.py`. A collection is written
once, in shards, then finished, and never changed; its name is a digest of what it holds.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import Document
from taugate.retrieval.vectors.similarity import Float32

EngineKind = Literal["milvus", "pgvector"]
Positions = NDArray[np.int64]
PREFIX = "tg_"
_MADE = "made by taugate at "
_NAME = re.compile(PREFIX + "[0-9a-f]{32}")


@dataclass(frozen=True)
class GraphParameters:
    """How an engine builds the graph of a collection, and how broadly it searches.

    The defaults are those of the in-process graph (retrieval/index/build.py): `edges` a document and layer,
    `edge_candidates` while it is built; `breadth` is the list of candidates of a search (ef), at least as long as what
    is asked for.
    """

    edges: int = 32
    edge_candidates: int = 200
    breadth: int = 128


@dataclass(frozen=True)
class Rows:
    """Rows of a collection, in the order in which they were asked for.

    Attributes:
        vectors: (m, d) float32, as uploaded to the bit.
        documents: m of them.
    """

    vectors: Float32
    documents: Sequence[Document]


@dataclass(frozen=True)
class Candidates:
    """What an engine proposes for n queries: c places each.

    Attributes:
        positions: (n, c) int64; −1 where it found no more.
        vectors: (n, c, d) float32; zeros where there is no candidate.
        documents: By position.
    """

    positions: Positions
    vectors: Float32
    documents: Mapping[int, Document]


@dataclass(frozen=True)
class CollectionState:
    """What an engine says of a collection.

    Attributes:
        dimension: d of its vectors.
        rows: In it.
        built: Whether its index is finished.
        pending: Rows that the index does not have yet.
        loaded: Whether it can be searched, on every replica: of several servers, on all that answer.
    """

    dimension: int
    rows: int
    built: bool
    pending: int
    loaded: bool

    @classmethod
    def of_all(cls, states: Sequence["CollectionState"]) -> "CollectionState":
        """Return the state of a collection on several servers: that of the first, loaded where no other differs."""
        first = states[0]
        return replace(first, loaded=first.loaded and all(each == first for each in states))


class Collection(Protocol):
    """A collection that is read. `deadline` is one of `time.monotonic()`, in seconds.

    Every method raises EngineUnavailable where the engine does not answer by then, and ReleaseError where it refuses.
    """

    name: str
    dimension: int

    def propose(self, queries: Float32, count: int, wanted: Filter, deadline: float) -> Candidates:
        """Return candidates with their vectors and documents.

        Args:
            queries: (n, d) float32 of unit length.
            count: How many of each, fewer where no more were found.
            wanted: That they meet; empty for all.

        Raises:
            InputError: For a filter that no engine can compare exactly.
        """
        ...

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """Return the rows at positions, (m,) int64, all distinct.

        Raises:
            ReleaseError: Where one is missing.
        """
        ...

    def where(self, wanted: Filter, most: int, deadline: float) -> Positions:
        """Return the positions of documents that meet a filter, (m ≤ most,) int64 ascending; which of more is open."""
        ...

    def find(self, document_id: str, deadline: float) -> Positions:
        """Return where the passage with an id is, else the chunks of the document with it, (m,) int64 ascending."""
        ...

    def state(self, deadline: float) -> CollectionState:
        """Return what the engine says of the collection, with every write counted."""
        ...


class Engine(Protocol):
    """A server, or several that hold the same collections. Errors and deadlines are as in Collection."""

    kind: EngineKind

    def create(self, name: str, dimension: int, deadline: float) -> None:
        """Make an empty collection, which must not be there.

        Args:
            dimension: Of its vectors.
        """
        ...

    def upload(self, name: str, first: int, shard: Rows, deadline: float) -> None:
        """Add a shard.

        Args:
            first: The position of its first row.

        Raises:
            InputError: For a document that does not fit.
        """
        ...

    def finish(self, name: str, graph: GraphParameters, deadline: float) -> None:
        """Build the index, and wait until it is finished and loaded."""
        ...

    def drop(self, name: str, deadline: float) -> None:
        """Remove a collection, finished or not; there need be none."""
        ...

    def names(self, deadline: float) -> list[str]:
        """Return the names of Taugate's collections, sorted."""
        ...

    def created(self, name: str, deadline: float) -> float | None:
        """Return when a collection was made, in seconds since 1970; None where nobody knows."""
        ...

    def collection(self, name: str, breadth: int, deadline: float) -> Collection:
        """Open a collection.

        Args:
            breadth: Of its searches.

        Raises:
            ReleaseError: Where there is none of that name.
        """
        ...


def collection_name(shards: Sequence[str], parameters: Mapping[str, int | str]) -> str:
    """Return the name of the collection of these contents: equal for equal contents, and for no others.

    Args:
        shards: SHA-256 of the shards of vectors and documents, in order.
        parameters: Of its index.
    """
    content = orjson.dumps({"shards": [*shards], "parameters": {**parameters}}, option=orjson.OPT_SORT_KEYS)
    return PREFIX + hashlib.sha256(content).hexdigest()[:32]


def time_written(seconds: float) -> str:
    """Return a time as it is written beside a collection.

    Args:
        seconds: Since 1970.
    """
    return f"{_MADE}{datetime.fromtimestamp(seconds, UTC).isoformat()}"


def time_read(written: str | None) -> float | None:
    """Return a time in seconds since 1970; None where the text is not what `time_written` wrote."""
    try:
        return datetime.fromisoformat((written or "").removeprefix(_MADE)).timestamp()
    except ValueError:
        return None


def check_name(name: str) -> str:
    """Return a name, which is put into statements as it is.

    Raises:
        InputError: Where it is not one of Taugate's.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is not the name of a collection; it is {PREFIX} and 32 hexadecimal digits")
    return name


def not_a_url(kind: EngineKind, example: str) -> InputError:
    """Return the error of a URL that is none of an engine; it is not repeated, as it may hold a password."""
    return InputError(f"TAUGATE_ENGINE_URL: no URL of {kind}; write it as {example}")


def check_dimension(name: str, queries: Float32, dimension: int) -> None:
    """Raise ReleaseError where queries, (n, d), are not as long as the vectors of the collection."""
    if queries.shape[1] != dimension:
        raise ReleaseError(
            f"{name}: holds vectors of dimension {dimension}, not the {queries.shape[1]} of the queries; "
            "use the release's encoder"
        )


def missing_rows(name: str, missing: Sequence[int]) -> ReleaseError:
    """Return the error of rows that a collection should have."""
    return ReleaseError(f"{name}: has no row at position {missing[0]}; upload the collection again")


def no_such_collection(name: str) -> ReleaseError:
    """Return the error of a collection that is not there."""
    return ReleaseError(f"the engine has no collection {name}; upload it, or name the engine that has it")
