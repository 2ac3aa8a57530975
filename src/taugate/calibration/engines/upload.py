"""Putting a corpus into an engine, shard by shard: once for all releases that share it.

The name of a collection is a digest of its contents, so a finished one that verifies is used as it is. What an upload
that was stopped has left is dropped and written again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np

from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.progress import Stopwatch
from taugate.errors import EngineUnavailable, ReleaseError, TaugateError
from taugate.retrieval.documents.field_types import FieldTypesWriter
from taugate.retrieval.documents.store import TEXTS, read_document
from taugate.retrieval.engines.engine import Engine, EngineKind, Rows
from taugate.retrieval.engines.filters import filterable
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.engines.verify import SampleDigest, open_verified, sampled_positions, shard_digest

_ANSWER = 120.0  # seconds for one question, or for the 4,096 rows of a sample
_SHARD = 1800.0  # seconds for one shard
_POLL = 1.0  # seconds between two looks at replicas that are behind
_INDEX = 7 * 86_400.0  # a graph of 10⁹ rows takes days


def corpus_rows(spool: Path, vectors: ShardedVectors) -> Iterator[tuple[int, Rows]]:
    """Yield the position of a shard's first row, and its rows, shard by shard.

    Args:
        spool: Folder with the texts, as DocumentWriter wrote them.
        vectors: Of the same documents.
    """
    with (spool / TEXTS).open("rb") as file:  # not through a map, which would count as memory of this process
        for first, block in vectors.blocks():
            yield first, Rows(block, [read_document(line) for line in islice(file, len(block))])


def engine_record(kind: EngineKind, spool: Path, vectors: ShardedVectors, watch: Stopwatch) -> EngineRecord:
    """Return what a release says of a corpus in an engine, before it is there; reads all of it once.

    Args:
        kind: Of the engine.
        spool: As of `corpus_rows`.
        vectors: As of `corpus_rows`.
        watch: Shows the progress.

    Raises:
        InputError: For a document that no engine can filter exactly.
    """
    count, dimension = vectors.shape
    positions, sample = sampled_positions(count), SampleDigest()
    shards: list[str] = []
    fields = FieldTypesWriter()
    with watch.task("reading the encoded corpus", count) as task:
        for first, rows in corpus_rows(spool, vectors):
            shards.append(shard_digest(rows))
            drawn = positions[np.searchsorted(positions, first) : np.searchsorted(positions, first + len(rows.vectors))]
            places = drawn - first
            sample.add(Rows(rows.vectors[places], [rows.documents[place] for place in places.tolist()]))
            for document in rows.documents:
                filterable(document)
                fields.append(document)
            task.done += len(rows.documents)
    return EngineRecord(
        kind=kind,
        rows=count,
        dimension=dimension,
        shards=tuple(shards),
        sample=sample.hexdigest(),
        fields=fields.types(),
    )


def ensure_uploaded(
    engine: Engine,
    record: EngineRecord,
    spool: Path,
    vectors: ShardedVectors,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> None:
    """See to it that the engine holds the collection of a record, finished and verified.

    Args:
        engine: That is to hold it.
        record: Of the corpus.
        spool: As of `corpus_rows`.
        vectors: As of `corpus_rows`.
        say: Told whether anything is uploaded.
        watch: Shows the progress.

    Raises:
        EngineUnavailable: , or InputError for a document that the engine cannot hold; an unfinished upload is dropped
            then.
        ReleaseError: , or InputError for a document that the engine cannot hold; an unfinished upload is dropped then.
    """
    name = record.collection
    if name in engine.names(_soon()):
        if _is_finished(engine, record, say):
            say(f"the engine has {name} already; nothing is uploaded")
            return
        engine.drop(name, _soon())
    say(f"uploading {record.rows:,} documents to {name}")
    engine.create(name, record.dimension, _soon())  # which refuses a collection that somebody else has begun meanwhile
    try:
        _upload(engine, record, spool, vectors, watch)
    except BaseException:
        with suppress(TaugateError):
            engine.drop(name, _soon())
        raise
    # Not dropped where the engine is away by now: the next calibration finds it, and looks again.
    _wait_for_replicas(engine, record)
    open_verified(engine, record, record.dimension, _soon())


def _is_finished(engine: Engine, record: EngineRecord, say: Callable[[str], None]) -> bool:
    """Tell whether a collection is finished and verifies; False where it has to be uploaded again."""
    name = record.collection
    state = engine.collection(name, record.breadth, _soon()).state(_soon())
    if not state.built:
        say(f"{name}: an upload was stopped before it was finished; it is written again")
        return False
    if state.pending or not state.loaded:  # of a build that was stopped, or of one that is in use and not loaded yet
        engine.finish(name, record.graph, time.monotonic() + _INDEX)
        _wait_for_replicas(engine, record)
    try:
        open_verified(engine, record, record.dimension, _soon())
    except EngineUnavailable:
        raise
    except ReleaseError as error:
        say(f"warning: {error}; it is written again now")
        return False
    return True


def _upload(engine: Engine, record: EngineRecord, spool: Path, vectors: ShardedVectors, watch: Stopwatch) -> None:
    name = record.collection
    with watch.task("uploading documents", record.rows) as task:
        for first, rows in corpus_rows(spool, vectors):
            engine.upload(name, first, rows, time.monotonic() + _SHARD)
            task.done += len(rows.documents)
    with watch.task("building the engine's index"):
        engine.finish(name, record.graph, time.monotonic() + _INDEX)


def _wait_for_replicas(engine: Engine, record: EngineRecord) -> None:
    """Wait until every server that answers has the collection, which a replica gets moments later; not for ever."""
    deadline = _soon()
    collection = engine.collection(record.collection, record.breadth, deadline)
    while not collection.state(deadline).loaded and time.monotonic() + _POLL < deadline:
        time.sleep(_POLL)


def _soon() -> float:
    return time.monotonic() + _ANSWER
