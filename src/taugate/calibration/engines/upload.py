"""Uploads a corpus to an engine once for all releases that share it, and reads it back, checked shard by shard.

The name of a collection is a digest of its contents, so a finished collection that verifies is reused. An unfinished
one is dropped and uploaded again.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from taugate.calibration.encoding.cache import CorpusChanges, CorpusDigests, ReusableVectors
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.encoding.shards import SHARD_ROWS
from taugate.calibration.progress import Job
from taugate.data.beir import Dataset
from taugate.errors import EngineUnavailable, ReleaseError, TaugateError
from taugate.release.engine import EngineKind, EngineRecord
from taugate.release.layout import TEXTS
from taugate.release.manifest import Manifest, ReleaseManifest
from taugate.retrieval.documents.metadata import FieldTypesWriter
from taugate.retrieval.documents.store import Document, DocumentStore, read_document
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.connect import (
    EngineAccess,
    SampleDigest,
    engine_from_environment,
    open_verified,
    recorded_fields,
    sampled_positions,
    shard_digest,
)
from taugate.retrieval.engines.corpus import collection_index, open_corpus
from taugate.retrieval.engines.engine import Engine, Rows, external
from taugate.retrieval.engines.filters import filterable
from taugate.retrieval.engines.search import EngineIndex
from taugate.retrieval.reader import Release

_TIMEOUT = 120.0  # seconds for one call, or for the 4,096 rows of a sample
_CONNECT_TIMEOUT = 30.0  # seconds
_SHARD_TIMEOUT = 1800.0  # seconds for one shard
_POLL = 1.0  # seconds between two checks of replicas that lag behind
_INDEX_TIMEOUT = 7 * 86_400.0  # seconds; a graph of 10⁹ rows takes days

JOB_ACCESS = EngineAccess(seconds=120.0)  # long: a job reads a whole shard at a time, and no client is waiting


def connect_engine(kind: EngineKind) -> Engine | None:
    """Connect to the engine and check that it responds; None for faiss, which runs in this process."""
    if (outside := external(kind)) is None:
        return None
    engine = engine_from_environment(outside)
    engine.names(time.monotonic() + _CONNECT_TIMEOUT)
    return engine


@dataclass(frozen=True)
class UploadedCorpus:
    """An encoded corpus in the collection of an engine."""

    engine: Engine
    record: EngineRecord
    vectors: ShardedVectors

    @classmethod
    def upload(cls, engine: Engine, spool: Path, vectors: ShardedVectors, job: Job) -> Self:
        """Upload a corpus, unless the engine has it; parameters and errors as for `ensure_uploaded`."""
        record = engine_record(engine.kind, spool, vectors, job)
        ensure_uploaded(engine, record, spool, vectors, job)
        return cls(engine, record, vectors)


def corpus_rows(spool: Path, vectors: ShardedVectors) -> Iterator[tuple[int, Rows]]:
    """Yield the position of each shard's first row and its rows."""
    with (spool / TEXTS).open("rb") as file:  # not memory-mapped, which would count as memory of this process
        for first, block in vectors.blocks():
            yield first, Rows(block, [read_document(line) for line in islice(file, len(block))])


def engine_record(kind: EngineKind, spool: Path, vectors: ShardedVectors, job: Job) -> EngineRecord:
    """Compute the record of a corpus for an engine before its upload, reading the corpus once."""
    count, dimension = vectors.shape
    positions, sample = sampled_positions(count), SampleDigest()
    shards: list[str] = []
    fields = FieldTypesWriter()
    with job.task("reading the encoded corpus", count) as task:
        for first, rows in corpus_rows(spool, vectors):
            shards.append(shard_digest(rows))
            drawn = positions[np.searchsorted(positions, first) : np.searchsorted(positions, first + len(rows.vectors))]
            places = drawn - first
            sample.add(Rows(rows.vectors[places], [rows.documents[place] for place in places.tolist()]))
            for document in rows.documents:
                filterable(document)
                fields.append(document)
            task.advance(len(rows.documents))
    return EngineRecord(
        kind=kind,
        rows=count,
        dimension=dimension,
        shards=tuple(shards),
        sample=sample.hexdigest(),
        fields=recorded_fields(fields.types()),
    )


def ensure_uploaded(engine: Engine, record: EngineRecord, spool: Path, vectors: ShardedVectors, job: Job) -> None:
    """Make sure that the engine holds the collection of a record, finished and verified.

    After an error, an unfinished upload is dropped.

    Raises:
        EngineUnavailable: If the engine does not respond.
        InputError: If the engine cannot hold a document.
        ReleaseError: If the collection does not verify after the upload.
    """
    name = record.collection
    if name in engine.names(_soon()):
        if _is_finished(engine, record, job):
            job.report(f"the engine already has {name}; nothing to upload")
            return
        engine.drop(name, _soon())
    job.report(f"uploading {record.rows:,} documents to {name}")
    engine.create(name, record.dimension, _soon())  # fails if another job has created the collection meanwhile
    try:
        _upload(engine, record, spool, vectors, job)
    except BaseException:
        with suppress(TaugateError):
            engine.drop(name, _soon())
        raise
    # The collection is kept if the engine fails from here on; the next calibration finds it and checks it again.
    _wait_for_replicas(engine, record)
    open_verified(engine, record, record.dimension, _soon())


def _is_finished(engine: Engine, record: EngineRecord, job: Job) -> bool:
    """Return whether a collection is finished and verifies; False if it has to be uploaded again."""
    name = record.collection
    state = engine.collection(name, record.breadth, _soon()).state(_soon())
    if not state.built:
        job.report(f"{name}: an earlier upload was interrupted; uploading again")
        return False
    if state.pending or not state.loaded:  # the build was interrupted, or the collection is not loaded yet
        engine.finish(name, record, time.monotonic() + _INDEX_TIMEOUT)
        _wait_for_replicas(engine, record)
    try:
        open_verified(engine, record, record.dimension, _soon())
    except EngineUnavailable:
        raise
    except ReleaseError as error:
        job.report(f"warning: {error}; uploading again")
        return False
    return True


def _upload(engine: Engine, record: EngineRecord, spool: Path, vectors: ShardedVectors, job: Job) -> None:
    name = record.collection
    with job.task("uploading documents", record.rows) as task:
        for first, rows in corpus_rows(spool, vectors):
            engine.upload(name, first, rows, time.monotonic() + _SHARD_TIMEOUT)
            task.advance(len(rows.documents))
    with job.task("building the engine's index"):
        engine.finish(name, record, time.monotonic() + _INDEX_TIMEOUT)


def _wait_for_replicas(engine: Engine, record: EngineRecord) -> None:
    """Wait, up to the timeout, until every replica that responds has loaded the collection."""
    deadline = _soon()
    collection = engine.collection(record.collection, record.breadth, deadline)
    while not collection.state(deadline).loaded and time.monotonic() + _POLL < deadline:
        time.sleep(_POLL)


def _soon() -> float:
    return time.monotonic() + _TIMEOUT


def documents_of(release: Release, job: Job) -> Iterable[Document]:
    """Return the documents of an open release, from its folder or its engine.

    Iterating raises ReleaseError if the engine has other documents than the release.
    """
    record, index = release.manifest.engine, collection_index(release.retriever.index)
    if record is None or index is None:
        return release.documents
    return stored_documents(index, record, job)


def documents_in(folder: Path, manifest: Manifest, job: Job) -> Iterable[Document]:
    """Return the documents of the release in `folder`, without opening it; otherwise like `documents_of`."""
    record = manifest.engine
    if record is None:
        return DocumentStore(folder)
    return stored_documents(open_corpus(record, record.dimension, JOB_ACCESS).index, record, job)


def stored_documents(index: EngineIndex, record: EngineRecord, job: Job) -> Iterator[Document]:
    """Yield the documents of a collection in order, after comparing the digest of each shard.

    Vectors are read with the documents, so an altered vector is detected before it gets into another release.

    Raises:
        EngineUnavailable: If the engine does not respond.
        ReleaseError: If a shard is not what was uploaded.
    """
    name, starts = record.collection, range(0, record.rows, SHARD_ROWS)
    with job.task("reading the current corpus from the engine", record.rows) as task:
        for number, start in enumerate(starts):
            rows = index.read(np.arange(start, min(start + SHARD_ROWS, record.rows)))
            if len(record.shards) != len(starts) or shard_digest(rows) != record.shards[number]:
                raise ReleaseError(
                    f"{name}: rows from {start} on differ from those of the release; check who can write to the "
                    f"engine, and run taugate calibrate --engine {record.kind} on the newer corpus"
                )
            yield from rows.documents
            task.advance(len(rows.documents))


def vectors_reusable_from_current(
    parent: ReleaseManifest | None, encoder: ExportedEncoder, kind: EngineKind, dataset: Dataset, job: Job
) -> ReusableVectors | None:
    """Find vectors to reuse in the current release, if its collection is in this engine and by the same encoder.

    With an engine there is no cache of embeddings; its collection serves as one.

    Returns:
        The vectors; None if there are none, in which case all documents are encoded.
    """
    current = None if parent is None else parent.searchable
    if current is None or current.engine is None or current.engine.kind != kind:
        return None
    if (current.encoder.sha256, current.projection) != (encoder.sha256, None):
        return None
    record = current.engine
    try:
        index = open_corpus(record, record.dimension, JOB_ACCESS).index
        old = CorpusDigests.of(stored_documents(index, record, job))
    except EngineUnavailable:
        raise
    except ReleaseError as error:
        name = current.release_id
        job.report(f"warning: encoding all documents again, because the vectors of {name} cannot be read: {error}")
        return None
    return ReusableVectors(CorpusChanges.between(old, CorpusDigests.of(dataset.documents)).sources, index.vectors)
