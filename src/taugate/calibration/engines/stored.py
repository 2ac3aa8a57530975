"""Reading a corpus back from an engine, every row of it checked against what the release recorded at its upload."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from taugate.calibration.encoding.shards import SHARD_ROWS
from taugate.calibration.progress import Stopwatch
from taugate.errors import ReleaseError
from taugate.retrieval.documents.store import Document, DocumentStore
from taugate.retrieval.engines.corpus import EngineAccess, open_corpus
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.engines.verify import shard_digest
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.reader import Release

JOB_ACCESS = EngineAccess(seconds=120.0)  # a job reads a shard at a time, and nobody waits for it at a screen


def documents_of(release: Release, watch: Stopwatch) -> Iterable[Document]:
    """Return the documents of an open release, from its folder or from its engine.

    Args:
        watch: Shows the progress of an engine.

    Raises:
        ReleaseError: While they are read, where the engine has others.
    """
    record, index = release.manifest.engine, release.retriever.index
    if record is None or not isinstance(index, EngineIndex):
        return release.documents
    return stored_documents(index, record, watch)


def documents_in(folder: Path, manifest: Manifest, watch: Stopwatch) -> Iterable[Document]:
    """Return the documents of a release that need not be open.

    Args:
        folder: Of the release. The rest as `documents_of`.
    """
    record = manifest.engine
    if record is None:
        return DocumentStore(folder)
    return stored_documents(open_corpus(record, record.dimension, JOB_ACCESS).index, record, watch)


def stored_documents(index: EngineIndex, record: EngineRecord, watch: Stopwatch) -> Iterator[Document]:
    """Yield the documents of a collection in order, shard by shard, each once its digest was compared.

    A vector is read with its document, so that one that was altered is found before it gets into another release.

    Args:
        index: Of the collection.
        record: Of the release.
        watch: Shows the progress.

    Raises:
        EngineUnavailable: , and ReleaseError where a shard is not what was uploaded.
    """
    name, starts = record.collection, range(0, record.rows, SHARD_ROWS)
    with watch.task("reading the current corpus from the engine", record.rows) as task:
        for number, start in enumerate(starts):
            rows = index.read(np.arange(start, min(start + SHARD_ROWS, record.rows)))
            if len(record.shards) != len(starts) or shard_digest(rows) != record.shards[number]:
                raise ReleaseError(
                    f"{name}: rows from {start} on are not those that the release was made of; find out who may write "
                    f"to the engine, and run taugate calibrate --engine {record.kind} on the newer corpus"
                )
            yield from rows.documents
            task.done += len(rows.documents)
