"""A corpus that is not in memory: searched shard by shard or by an engine, and uploaded to the engine."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.cache import CorpusChanges, CorpusDigests, ReusableVectors
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.encoding.shards import SHARD_ROWS
from taugate.calibration.progress import Job
from taugate.data.beir import Dataset
from taugate.errors import EngineUnavailable, ReleaseError, TaugateError
from taugate.policy.arrays import Float32, HybridVectors, QueryVectors, StoredVectors, dense_of
from taugate.release.engine import EngineKind, EngineRecord
from taugate.release.layout import TEXTS
from taugate.release.manifest import Manifest, ReleaseManifest
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.metadata import FieldTypesWriter
from taugate.retrieval.documents.store import Document, DocumentStore, read_document
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.corpus import collection_index, open_corpus
from taugate.retrieval.engines.engine import (
    Collection,
    Engine,
    EngineAccess,
    Positions,
    Rows,
    SampleDigest,
    engine_from_environment,
    external,
    open_verified,
    recorded_fields,
    sampled_positions,
    shard_digest,
)
from taugate.retrieval.engines.filters import filterable
from taugate.retrieval.engines.search import EngineIndex, EngineSearch, score_members
from taugate.retrieval.index.flat import FlatIndex, best_of
from taugate.retrieval.index.hybrid import HybridIndex, Scored, require_words
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import DocumentSubset, Observe, TopK
from taugate.retrieval.reader import Release
from taugate.retrieval.vectors import pair_similarity, rounding_bound, similarity

_TIMEOUT = 120.0  # seconds for one batch of queries, one call, or the 4,096 rows of a sample
_QUERIES = 512  # queries compared with a block at a time: with 8,192 documents, 16 MB


class ShardedIndex:
    """Exact search of (N, d) vectors that are read block by block; an Index.

    The result is that of a FlatIndex of all vectors, to the bit.
    """

    def __init__(self, vectors: StoredVectors) -> None:
        self.stored = vectors

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.stored.shape[1]

    def __len__(self) -> int:
        return self.stored.shape[0]

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(dense_of(queries), self.stored, positions)

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See Searchable.search; reads all vectors once."""
        dense = dense_of(queries)
        return self.search_blocks(lambda first, block: FlatIndex.build(block).search(dense, k), len(dense), k)

    def search_blocks(self, search: Callable[[int, Float32], TopK], queries: int, k: int) -> TopK:
        """Return the k best documents of a number of queries from the k best of every block.

        Args:
            search: Searches a block, given the position of its first vector; positions in results count from there.
        """
        best = TopK(np.empty((queries, 0), np.float32), np.empty((queries, 0), np.int64))
        for first, block in self.stored.blocks():
            results = search(first, block)
            # Earlier blocks come first, and ties within a block are in order, so ties go to the lower position.
            scores = np.concatenate([best.scores, results.scores], axis=1)
            best = best_of(np.concatenate([best.positions, results.positions + first], axis=1), scores, k)
        return best

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; scores the whole subset."""
        return score_members(self, queries, k, within)


class ShardedHybridIndex(HybridIndex):
    """Exact search of a ShardedIndex by a score with a lexical part; an Index.

    The result is that of a HybridIndex of all vectors, to the bit.

    Attributes:
        weight: Weight w of the share, above 0.
    """

    vectors: ShardedIndex

    def __init__(self, vectors: ShardedIndex, lexical: LexicalIndex, weight: float) -> None:
        super().__init__(vectors, lexical, weight)
        # Rounding of the cosine, then of two sums of at most 1 + w.
        self._bound = rounding_bound(vectors.dimension) + (1 + weight) * 2.0**-23

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See Searchable.search; reads all vectors once."""
        hybrid = require_words(queries)

        def search(first: int, block: Float32) -> TopK:
            shape = len(hybrid), min(k, len(block))
            best = TopK(np.empty(shape, np.float32), np.empty(shape, np.int64))
            for start in range(0, len(hybrid), _QUERIES):
                for row, cosines in enumerate(hybrid.dense[start : start + _QUERIES] @ block.T, start):
                    top = self._best_of_block(hybrid[row : row + 1], cosines, k, first, block)
                    best.scores[row], best.positions[row] = top.scores, top.positions
            return best

        return self.vectors.search_blocks(search, len(hybrid), k)

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; scores the whole subset."""
        return score_members(self, queries, k, within)

    def _best_of_block(
        self, query: HybridVectors, rough_cosines: Float32, k: int, first: int, block: Float32
    ) -> Scored:
        """Return the best of the m documents of a block; positions count from its first one.

        Args:
            rough_cosines: (m,) float32 dot products with rounding errors.
            first: Position of the block's first document.
            block: (m, d) vectors.
        """
        weighted = np.float32(self.weight) * self.lexical.range_shares(query.terms[0], first, first + len(block))
        rough = rough_cosines + weighted
        k = min(k, len(block))
        kth = np.partition(rough, len(block) - k)[len(block) - k]
        candidates = np.flatnonzero(rough >= kth - 2 * self._bound)
        cosines = similarity(query.dense, block[candidates][None])[0]
        return Scored(candidates, cosines + weighted[candidates]).best(k)


class ProposedIndex(EngineIndex):
    """An engine's collection as a calibration searches it; an Index.

    Pairs are scored from the encoded vectors, which equal the uploaded ones.

    Args:
        vectors: (N, d), as uploaded.
    """

    def __init__(self, engine: Engine, record: EngineRecord, vectors: StoredVectors) -> None:
        collection = engine.collection(record.collection, record.breadth, time.monotonic() + _TIMEOUT)
        super().__init__(collection, record.rows, _TIMEOUT)
        self._stored = vectors

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(dense_of(queries), self._stored, positions)

    def begin(self, query_filter: Filter, observe: Observe, listed: int = 0) -> EngineSearch:
        """See EngineIndex.begin."""
        return _StoredSearch(self._stored, self._collection, len(self), query_filter, observe, listed)


class _StoredSearch(EngineSearch):
    """A search that reads vectors from the encoded corpus instead of the engine."""

    def __init__(
        self,
        vectors: StoredVectors,
        collection: Collection,
        count: int,
        query_filter: Filter,
        observe: Observe,
        listed: int,
    ) -> None:
        super().__init__(collection, count, query_filter, _TIMEOUT, observe, listed)
        self._stored = vectors

    def vectors(self, positions: Positions) -> Float32:
        return self._stored[positions]


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
    """Make sure that the engine holds the finished, verified collection of a record; an error drops it unfinished."""
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
