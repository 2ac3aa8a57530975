"""Connects a release to its engine by the manifest's `engine` record, and verifies that it is the same collection."""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from taugate.errors import InputError, ReleaseError
from taugate.plugins import distribution, load_one
from taugate.release.engine import LISTS, EngineKind, EngineRecord
from taugate.release.names import KINDS
from taugate.retrieval.documents.filters import composed
from taugate.retrieval.documents.metadata import FieldType, FieldTypes
from taugate.retrieval.documents.store import write_document
from taugate.retrieval.engines.engine import Collection, ConnectEngine, Engine, Positions, Rows
from taugate.storage.files import read_secret

URL, TOKEN_FILE = "TAUGATE_ENGINE_URL", "TAUGATE_ENGINE_TOKEN_FILE"

# If 1 % of the rows are altered, a sample of this size misses all of them with a probability of 10⁻¹⁸ (.99^4096).
SAMPLE = 4096
_FIRST_REPLY = 10.0  # seconds after which an engine without a reply counts as unavailable
_BLOCK = 512  # rows of the sample read at a time


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
    """Return the engine that the environment names; every command and the service use this function.

    Args:
        environ: Environment variables. URL has one or more URLs, separated by commas; TOKEN_FILE may name a file.
    """
    token_file = environ.get(TOKEN_FILE)
    return engine_at(kind, environ.get(URL, ""), Path(token_file) if token_file else None)


def engine_at(kind: EngineKind, urls: str, token_file: Path | None) -> Engine:
    """Return the engine at these URLs; nothing is sent to it yet.

    Args:
        urls: URLs of its servers, separated by commas.
        token_file: File with the token of Milvus or the password of PostgreSQL; None if there is none.
    """
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
    """Open the collection of a release after checking it.

    Args:
        dimension: Dimension of the vectors of the release's encoder.
        deadline: A time of `time.monotonic()`.
    """
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
