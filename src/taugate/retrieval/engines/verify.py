"""Verifies that a collection is the one that a release was calibrated on; each difference has its own message."""

import hashlib
import time

import numpy as np

from taugate.errors import ReleaseError
from taugate.retrieval.documents.store import write_document
from taugate.retrieval.engines.engine import Collection, Engine, Positions, Rows
from taugate.retrieval.engines.record import EngineRecord

# If 1 % of the rows are altered, a sample of this size misses all of them with a probability of 10⁻¹⁸ (.99^4096).
SAMPLE = 4096
_FIRST_REPLY = 10.0  # seconds after which an engine without a reply counts as unavailable
_BLOCK = 512  # rows of the sample read at a time


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
    """Return the digest of the sample as the engine returns it.

    Args:
        collection: Collection that holds the rows.
        rows: Number of rows.
        deadline: A time of `time.monotonic()`.

    Raises:
        ReleaseError: If a row is missing.
    """
    digest, positions = SampleDigest(), sampled_positions(rows)
    for start in range(0, len(positions), _BLOCK):
        digest.add(collection.fetch(positions[start : start + _BLOCK], deadline))
    return digest.hexdigest()


def open_verified(engine: Engine, record: EngineRecord, dimension: int, deadline: float) -> Collection:
    """Open the collection of a release after checking it.

    Args:
        engine: Engine that holds it.
        record: Engine record of the release.
        dimension: Dimension of the vectors of the release's encoder.
        deadline: A time of `time.monotonic()`.

    Raises:
        ReleaseError: If the collection differs from the record; names the first difference.
        EngineUnavailable: If the engine does not respond.
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
