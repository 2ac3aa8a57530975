"""Read a corpus back from an engine, checking every shard against the digest recorded at its upload."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from taugate.calibration.encoding.changes import CorpusChanges, CorpusDigests, ReusableVectors
from taugate.calibration.encoding.shards import SHARD_ROWS
from taugate.calibration.progress import Job
from taugate.errors import EngineUnavailable, ReleaseError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.documents.store import Document, DocumentStore
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.access import EngineAccess
from taugate.retrieval.engines.corpus import open_corpus
from taugate.retrieval.engines.engine import EngineKind
from taugate.retrieval.engines.hybrid import collection_index
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.engines.verify import shard_digest
from taugate.retrieval.release.manifest import Manifest, ReleaseManifest
from taugate.retrieval.release.reader import Release

JOB_ACCESS = EngineAccess(seconds=120.0)  # long: a job reads a whole shard at a time, and no client is waiting


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

    Args:
        index: Index of the collection.
        record: Record in the release.
        job: Shows the progress.

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

    Args:
        parent: Manifest of the current release, None without one.
        encoder: Document encoder of the new release.
        kind: Kind of engine.
        dataset: The data set.
        job: Reports progress and warnings, and times the stages.

    Returns:
        The vectors; None if there are none, in which case all documents are encoded.

    Raises:
        EngineUnavailable: If the engine does not respond.
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
