"""The corpus of the large collection, and its releases: made once, and kept in the work folder for later runs."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.checkout import environment
from benchmarks.engines.plan import EnginePlan
from benchmarks.engines.releases import Source, make_current
from benchmarks.engines.tiled import TiledCorpus, tiled
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.gate.baseline import index_record
from taugate.calibration.gate.indexes import recall, set_breadth
from taugate.ingestion.dataset.sample import write_sample
from taugate.registry.catalog import find
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex
from taugate.retrieval.index.build import build
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.policy.background import ReadDocuments
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.vectors.similarity import Float32

K = 10  # results of a search
_FEW = 10_000  # documents that are searched exactly, as by `--index auto`
_CHOOSING, _MARGIN = 500, 0.005  # as benchmarks.serving.tiled_release chooses the breadth of its index


@dataclass(frozen=True)
class LargeCorpus:
    """A corpus and the queries for it.

    Attributes:
        tiled: Its files.
        vectors: (N, d).
        texts: The queries, and their vectors.
        asked: The queries, and their vectors.
        sample: Release whose encoder and policy are served.
    """

    tiled: TiledCorpus
    vectors: ShardedVectors
    texts: list[str]
    asked: Float32
    sample: Source

    def read(self, positions: np.ndarray) -> ReadDocuments:
        """Read what the model of relevance compares."""
        return ReadDocuments(self.vectors[positions], self.vectors.lengths[positions])


def large_corpus(plan: EnginePlan) -> LargeCorpus:
    """Make the corpus, and the release of the sample, where an earlier run has not."""
    plan.work.mkdir(parents=True, exist_ok=True)
    sample, releases = plan.work / "sample", plan.work / "sample-releases"
    if not (releases / "current").is_file():
        write_sample(sample)
        command = [sys.executable, "-m", "taugate", "calibrate", str(sample), "--releases", str(releases)]
        subprocess.run(command, check=True, env=environment(), stdout=subprocess.DEVNULL)
    source = Source(find(releases))
    files = tiled(plan.data, plan.work / f"tiled-{plan.documents}-{plan.characters}", plan.documents, plan.characters)
    encoder, texts = source.encoder(), files.queries()[: plan.queries or None]
    vectors = ShardedVectors.open(str(files.encoded), encoder.sha256, files.folder)
    return LargeCorpus(files, vectors, texts, encoder.encode(texts, "query"), source)


def in_process(corpus: LargeCorpus) -> Path:
    """Write a release with the corpus unless there is one; returns its directory."""
    releases = corpus.tiled.folder / "in-process"
    if not (releases / "current").is_file():
        index, record = _index(corpus)
        stored, _ = corpus.sample.relevance(corpus.vectors, corpus.asked, corpus.read)
        golden = corpus.sample.golden(index, DocumentStore(corpus.tiled.spool))
        make_current(releases, corpus.sample.in_process(releases, index, record, corpus.tiled.spool, golden, stored))
    return releases


def _index(corpus: LargeCorpus) -> tuple[AnyIndex, IndexRecord]:
    """Build what such a corpus is served with: exact search where that is fast, else a graph."""
    vectors = np.concatenate([block for _, block in corpus.vectors.blocks()])
    flat = FlatIndex.build(vectors)
    if len(vectors) <= _FEW:
        return flat, IndexRecord(kind="flat", metric="cosine", documents=len(vectors))
    index, queries = build("hnsw", vectors), corpus.asked[-_CHOOSING:]
    if isinstance(index, ApproximateIndex):
        set_breadth(index, flat, queries, K, _MARGIN)
    return index, index_record(index, recall(index, flat, queries, flat.search(queries, K)), K)


def over_engine(corpus: LargeCorpus, record: EngineRecord, found: float, index: EngineIndex) -> Path:
    """Write a release over the collection, where there is none; returns its directory.

    Args:
        record: Of the collection.
        found: Recall of its searches.
        index: That searches it.
    """
    releases = corpus.tiled.folder / f"over-{record.kind}-{record.breadth}"
    if not (releases / "current").is_file():
        _, computed = corpus.sample.relevance(corpus.vectors, corpus.asked, corpus.read)
        golden = corpus.sample.golden(index, DocumentStore(corpus.tiled.spool))
        make_current(releases, corpus.sample.over_engine(releases, record, found, golden, computed))
    return releases
