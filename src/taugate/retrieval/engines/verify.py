"""Whether a collection is the one that a release was calibrated on: each difference is refused with its own message."""

import hashlib
import time

import numpy as np

from taugate.errors import ReleaseError
from taugate.retrieval.documents.store import write_document
from taugate.retrieval.engines.engine import Collection, Engine, Positions, Rows
from taugate.retrieval.engines.record import EngineRecord

# Of a collection with 1 % of its rows altered, a sample of so many misses all with a chance of 10⁻¹⁸ (.99^4096).
SAMPLE = 4096
_FIRST_ANSWER = 10.0  # seconds after which an engine that has said nothing is one that is away
_BLOCK = 512  # rows of the sample that are read at a time


def shard_digest(shard: Rows) -> str:
    """Return the SHA-256 of the vectors and documents of a shard."""
    digest = hashlib.sha256()
    _add(digest, shard)
    return digest.hexdigest()


def sampled_positions(rows: int) -> Positions:
    """Return the positions of the sample, (min(SAMPLE, rows),) int64 ascending: the same for the same rows."""
    drawn = np.random.default_rng(0).choice(rows, size=min(SAMPLE, rows), replace=False)
    return np.sort(drawn).astype(np.int64)


class SampleDigest:
    """The digest of a sample's rows, added in the order of their positions."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, rows: Rows) -> None:
        """Add the next rows."""
        _add(self._digest, rows)

    def hexdigest(self) -> str:
        """Return the SHA-256 of all that was added."""
        return self._digest.hexdigest()


def sample_digest(collection: Collection, rows: int, deadline: float) -> str:
    """Return the digest of the sample as the engine returns it.

    Args:
        collection: That holds the rows.
        rows: How many.
        deadline: Of `time.monotonic()`.

    Raises:
        ReleaseError: Where a row is missing.
    """
    digest, positions = SampleDigest(), sampled_positions(rows)
    for start in range(0, len(positions), _BLOCK):
        digest.add(collection.fetch(positions[start : start + _BLOCK], deadline))
    return digest.hexdigest()


def open_verified(engine: Engine, record: EngineRecord, dimension: int, deadline: float) -> Collection:
    """Open the collection of a release, once it has been checked.

    Args:
        engine: That holds it.
        record: Of the release.
        dimension: Of the vectors of the release's encoder.
        deadline: Of `time.monotonic()`.

    Raises:
        ReleaseError: With the first difference, and EngineUnavailable.
    """
    name = record.collection
    if engine.kind != record.kind:
        raise ReleaseError(f"the release's vectors are in {record.kind}, not in {engine.kind}; name that engine's URL")
    collection = engine.collection(name, record.graph.breadth, min(deadline, time.monotonic() + _FIRST_ANSWER))
    state = collection.state(deadline)
    if state.dimension != dimension or record.dimension != dimension:
        raise ReleaseError(
            f"{name}: holds vectors of dimension {state.dimension}, and the release's encoder makes {dimension}; "
            "upload the vectors of this encoder"
        )
    if not state.built:
        raise ReleaseError(f"{name}: has no finished index; finish the upload, or upload it again")
    if state.pending:
        raise ReleaseError(f"{name}: its index lacks {state.pending} rows that it is still adding; try again later")
    if not state.loaded:
        raise ReleaseError(f"{name}: is not loaded on every replica; load it, or wait for one that is behind")
    if state.rows != record.rows:
        raise ReleaseError(f"{name}: holds {state.rows} rows, not {record.rows}; upload the collection again")
    if sample_digest(collection, record.rows, deadline) != record.sample:
        raise ReleaseError(
            f"{name}: vectors or documents differ from those of the release; upload the collection again"
        )
    return collection


def _add(digest: "hashlib._Hash", rows: Rows) -> None:
    """Add rows to a digest: of each its vector, the length of its document's JSON, and that."""
    for vector, document in zip(rows.vectors, rows.documents, strict=True):
        written = write_document(document)
        digest.update(np.ascontiguousarray(vector, dtype="<f4").tobytes())
        digest.update(len(written).to_bytes(8, "little"))
        digest.update(written)
