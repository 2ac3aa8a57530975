"""The interface of an engine, an external store that proposes candidates, and how a release connects to it.

An engine never decides: `search.py` scores its candidates with `retrieval.vectors`. A collection is written
once, in shards, then finished and never changed; its name is a digest of its contents.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError, ReleaseError
from taugate.plugins import distribution, load_one
from taugate.policy.arrays import Float32
from taugate.release.engine import LISTS, PREFIX, EngineKind, EngineRecord, GraphParameters
from taugate.release.names import KINDS
from taugate.retrieval.documents.filters import Filter, composed
from taugate.retrieval.documents.metadata import FieldType, FieldTypes
from taugate.retrieval.documents.store import Document, read_document, write_document
from taugate.storage.files import read_secret

IN_PROCESS = "faiss"  # in place of a kind: the release itself holds vectors and documents
Positions = NDArray[np.int64]
_CREATED = "made by taugate at "  # stored in collections, so it cannot change
_NAME = re.compile(PREFIX + "[0-9a-f]{32}")

URL, TOKEN_FILE = "TAUGATE_ENGINE_URL", "TAUGATE_ENGINE_TOKEN_FILE"

# If 1 % of the rows are altered, a sample of this size misses all of them with a probability of 10⁻¹⁸ (.99^4096).
SAMPLE = 4096
_FIRST_REPLY = 10.0  # seconds after which an engine without a reply counts as unavailable
_BLOCK = 512  # rows of the sample read at a time


def external(choice: EngineKind) -> EngineKind | None:
    """Return the engine outside the release; None if the release holds the vectors itself."""
    return None if choice == IN_PROCESS else choice


@dataclass(frozen=True)
class Rows:
    """Rows of a collection, in the order of the request."""

    vectors: Float32  # (m, d) float32, bit for bit as uploaded
    documents: Sequence[Document]


@dataclass(frozen=True)
class Candidates:
    """The candidates that an engine proposes for n queries, c places per query."""

    positions: Positions  # (n, c) int64; −1 in places without a candidate
    vectors: Float32  # (n, c, d) float32; zeros in places without a candidate
    documents: Mapping[int, Document]


@dataclass(frozen=True)
class CollectionState:
    """The state of a collection as its engine reports it."""

    dimension: int
    rows: int
    built: bool  # whether its index is finished
    pending: int  # number of rows not yet in the index
    loaded: bool  # whether every replica, or every server that responds, can search it

    @classmethod
    def of_all(cls, states: Sequence["CollectionState"]) -> "CollectionState":
        """Return the state of a collection on several servers: that of the first, loaded only if all are equal."""
        first = states[0]
        return replace(first, loaded=first.loaded and all(state == first for state in states))


class Collection(Protocol):
    """Read access to a collection. A `deadline` is a time of `time.monotonic()`, in seconds.

    Every method raises EngineUnavailable if the engine does not respond by then, and ReleaseError if it refuses.
    """

    name: str
    dimension: int

    def propose(self, queries: Float32, count: int, query_filter: Filter, deadline: float) -> Candidates:
        """Return candidates with their vectors and documents.

        Args:
            queries: (n, d) float32 of unit length.
            count: Candidates per query; the engine may find fewer.
            query_filter: Filter that candidates meet; empty for all documents.

        Raises:
            InputError: If an engine cannot compare a value of the filter exactly.
        """
        ...

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """Return the rows at m distinct positions, (m,) int64.

        Raises:
            ReleaseError: If a row is missing.
        """
        ...

    def where(self, query_filter: Filter, limit: int, deadline: float, among: Positions | None = None) -> Positions:
        """Return positions of documents that meet a filter, (m ≤ limit,) int64 ascending.

        Args:
            limit: Largest number of documents to return.
            among: Positions to look at, int64; None for all.
        """
        ...

    def find(self, document_id: str, deadline: float) -> Positions:
        """Return the position of the passage with an id, else of the chunks of that document, (m,) int64 ascending."""
        ...

    def state(self, deadline: float) -> CollectionState:
        """Return the state of the collection, counting every write."""
        ...


class Engine(Protocol):
    """One or more servers that hold the same collections. Errors and deadlines are as in Collection."""

    kind: EngineKind
    exact: bool  # whether its search is exact, so that a calibration need not compare it with exact search

    def create(self, name: str, dimension: int, deadline: float) -> None:
        """Create an empty collection for vectors of a dimension; the name must be free."""
        ...

    def upload(self, name: str, first: int, shard: Rows, deadline: float) -> None:
        """Add a shard.

        Args:
            first: Position of the shard's first row.

        Raises:
            InputError: If the engine cannot hold a document.
        """
        ...

    def finish(self, name: str, graph: GraphParameters, deadline: float) -> None:
        """Build the index and wait until it is finished and loaded."""
        ...

    def drop(self, name: str, deadline: float) -> None:
        """Remove a collection if it exists, finished or not."""
        ...

    def names(self, deadline: float) -> list[str]:
        """Return the names of Taugate's collections, sorted."""
        ...

    def created(self, name: str, deadline: float) -> float | None:
        """Return when a collection was created, in seconds since 1970; None if unknown."""
        ...

    def collection(self, name: str, breadth: int, deadline: float) -> Collection:
        """Open a collection for searches of a breadth.

        Raises:
            ReleaseError: If there is no collection of that name.
        """
        ...


class ConnectEngine(Protocol):
    """An entry point of the group `taugate.engines`; its name is the kind of the engines that it connects to."""

    def __call__(self, urls: Sequence[str], secret: str) -> Engine:
        """Return the engine at one or more URLs; nothing is sent to it yet."""
        ...


def time_written(seconds: float) -> str:
    """Return the text stored with a collection for its creation time, in seconds since 1970."""
    return f"{_CREATED}{datetime.fromtimestamp(seconds, UTC).isoformat()}"


def time_read(written: str | None) -> float | None:
    """Return the time in seconds since 1970; None if `time_written` did not write the text."""
    try:
        return datetime.fromisoformat((written or "").removeprefix(_CREATED)).timestamp()
    except ValueError:
        return None


def check_name(name: str) -> str:
    """Return a name after checking that it is safe to put into statements.

    Raises:
        InputError: If it is not the name of a Taugate collection.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is not the name of a collection; it is {PREFIX} and 32 hexadecimal digits")
    return name


def not_a_url(kind: EngineKind, example: str) -> InputError:
    """Return the error for an invalid URL of an engine. The URL is not repeated because it may hold a password."""
    return InputError(f"TAUGATE_ENGINE_URL: not a URL of {kind}; write it as {example}")


def check_dimension(name: str, queries: Float32, dimension: int) -> None:
    """Raise ReleaseError if queries, (n, d), do not have the dimension of the collection."""
    if queries.shape[1] != dimension:
        raise ReleaseError(
            f"{name}: holds vectors of dimension {dimension}, but queries have {queries.shape[1]}; "
            "use the release's encoder"
        )


def missing_rows(name: str, missing: Sequence[int]) -> ReleaseError:
    """Return the error for rows that are missing from a collection."""
    return ReleaseError(f"{name}: has no row at position {missing[0]}; upload the collection again")


def stored_document(name: str, position: int, written: str | bytes) -> Document:
    """Read a document from its row; raises ReleaseError if it is none."""
    try:
        return read_document(written)
    except ValueError as error:
        raise ReleaseError(f"{name}: the row at {position} is not a document; upload it again") from error


def no_such_collection(name: str) -> ReleaseError:
    """Return the error for a missing collection."""
    return ReleaseError(f"the engine has no collection {name}; upload it, or set the URL of the engine that has it")


def field_types(record: EngineRecord) -> FieldTypes:
    """Return the metadata fields of a collection, with names in composed form."""
    by_name = {
        composed(name): FieldType(frozenset(KINDS.index(word) for word in words if word != LISTS), LISTS in words)
        for name, words in record.fields.items()
    }
    return FieldTypes(by_name)


def recorded_fields(types: FieldTypes) -> dict[str, list[str]]:
    """Return field types as `EngineRecord.fields` has them."""
    return {
        name: [*(KINDS[kind] for kind in sorted(field.kinds)), *([LISTS] if field.has_lists else [])]
        for name, field in types.by_name.items()
    }


def engine_from_environment(kind: EngineKind, environ: Mapping[str, str] = os.environ) -> Engine:
    """Return the engine that the environment names; every command and the service use this function."""
    token_file = environ.get(TOKEN_FILE)
    return engine_at(kind, environ.get(URL, ""), Path(token_file) if token_file else None)


def engine_at(kind: EngineKind, urls: str, token_file: Path | None) -> Engine:
    """Return the engine at these URLs; nothing is sent to it yet; `urls`: URLs of its servers, separated by commas."""
    servers = [url.strip() for url in urls.split(",") if url.strip()]
    if not servers:
        load_one("engines", kind)  # names a missing plug-in first
        raise InputError(f"{URL} is not set, and the vectors are in {kind}; set it to the URL of the engine")
    return connect(kind, servers, "" if token_file is None else read_secret(token_file, TOKEN_FILE))


def connect(kind: EngineKind, urls: Sequence[str], secret: str = "") -> Engine:
    """Return an engine; nothing is sent to it yet; `secret`: token or password; empty if there is none."""
    entry_point: ConnectEngine = load_one("engines", kind)
    try:
        return entry_point(urls, secret)
    except ModuleNotFoundError as error:
        extra = f"{distribution('engines', kind)}[{kind}]"
        raise InputError(f"{kind}: {error.name} is not installed; pip install '{extra}'") from error


def shard_digest(shard: Rows) -> str:
    """Return the SHA-256 of the vectors and documents of a shard."""
    digest = hashlib.sha256()
    _add(digest, shard)
    return digest.hexdigest()


def sampled_positions(rows: int) -> Positions:
    """Return the positions of the sample, (min(SAMPLE, rows),) int64 ascending, which depend on `rows` alone."""
    positions = np.random.default_rng(0).choice(rows, size=min(SAMPLE, rows), replace=False)
    return np.sort(positions).astype(np.int64)


class SampleDigest:
    """Digest of a sample's rows, which are added in the order of their positions."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, rows: Rows) -> None:
        """Add the next rows."""
        _add(self._digest, rows)

    def hexdigest(self) -> str:
        """Return the SHA-256 of the added rows."""
        return self._digest.hexdigest()


def sample_digest(collection: Collection, rows: int, deadline: float) -> str:
    """Return the digest of the sample as the engine returns it; `deadline`: a time of `time.monotonic()`."""
    digest, positions = SampleDigest(), sampled_positions(rows)
    for start in range(0, len(positions), _BLOCK):
        digest.add(collection.fetch(positions[start : start + _BLOCK], deadline))
    return digest.hexdigest()


def open_verified(engine: Engine, record: EngineRecord, dimension: int, deadline: float) -> Collection:
    """Open the collection of a release after checking it; `deadline`: a time of `time.monotonic()`."""
    name = record.collection
    if engine.kind != record.kind:
        raise ReleaseError(f"the release's vectors are in {record.kind}, not in {engine.kind}; name that engine's URL")
    collection = engine.collection(name, record.breadth, min(deadline, time.monotonic() + _FIRST_REPLY))
    state = collection.state(deadline)
    if state.dimension != dimension or record.dimension != dimension:
        raise ReleaseError(
            f"{name}: holds vectors of dimension {state.dimension}, but the release's encoder makes {dimension}; "
            "upload the vectors of this encoder"
        )
    if not state.built:
        raise ReleaseError(f"{name}: has no finished index; finish the upload, or upload it again")
    if state.pending:
        raise ReleaseError(f"{name}: {state.pending} rows are still being added to its index; try again later")
    if not state.loaded:
        raise ReleaseError(f"{name}: is not loaded on every replica; load it, or wait for the slowest replica")
    if state.rows != record.rows:
        raise ReleaseError(f"{name}: holds {state.rows} rows, not {record.rows}; upload the collection again")
    if sample_digest(collection, record.rows, deadline) != record.sample:
        raise ReleaseError(
            f"{name}: vectors or documents differ from those of the release; upload the collection again"
        )
    return collection


def _add(digest: "hashlib._Hash", rows: Rows) -> None:
    """Add rows to a digest: for each row its vector, the length of its document's JSON, and the JSON."""
    for vector, document in zip(rows.vectors, rows.documents, strict=True):
        written = write_document(document)
        digest.update(np.ascontiguousarray(vector, dtype="<f4").tobytes())
        digest.update(len(written).to_bytes(8, "little"))
        digest.update(written)


class MonitoredCollection(Collection, Protocol):
    """A collection whose availability is monitored."""

    def check(self) -> None:
        """Raise EngineUnavailable if the collection is known not to respond; sends no request."""
        ...

    def close(self) -> None:
        """Stop monitoring; a second call does nothing."""
        ...


@dataclass(frozen=True)
class EngineAccess:
    """How a release reaches its engine."""

    connect: Callable[[EngineKind], Engine] = engine_from_environment
    opening: float = 120.0  # timeout in seconds for checking the collection
    seconds: float = 30.0  # timeout in seconds of each later request
    # wraps the checked collection in one that monitors it; None if it is not monitored
    watch: Callable[[EngineRecord, Collection], MonitoredCollection] | None = None
