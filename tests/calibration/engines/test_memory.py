"""What a calibration over an engine reads of a corpus takes as much memory for a large one as for a small one."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.encoding.shards import EncodingRecord, corpus_shards, list_digest, shard_record
from taugate.calibration.engines import ShardedIndex, corpus_rows, engine_record
from taugate.calibration.metrics.embeddings import isotropy
from taugate.calibration.progress import Job
from taugate.calibration.query_set.measure import _distance_of, _first_passages
from taugate.retrieval.documents.store import Document, DocumentWriter
from taugate.storage.object_store import open_place
from tests.vectors import unit

SHARD, D = 256, 128
SMALL, LARGE = 4 * SHARD, 32 * SHARD
MOST = 0.1  # of the vectors that the large corpus has more

Corpus = tuple[Path, ShardedVectors]
READS: dict[str, Callable[[Corpus], object]] = {
    "record": lambda corpus: engine_record("pgvector", *corpus, Job()),
    "upload": lambda corpus: [len(rows.documents) for _, rows in corpus_rows(*corpus)],
    "exact search": lambda corpus: ShardedIndex(corpus[1]).search(unit(np.ones((20, D))), 10),
    "isotropy": lambda corpus: isotropy(corpus[1]),
    "distances": lambda corpus: _distance_of(_first_passages(corpus[1], None)),
}


def encoded(folder: Path, count: int) -> Corpus:
    folder.mkdir()
    writer = DocumentWriter(folder)
    for number in range(count):
        writer.append(Document(f"d{number}", f"text {number} " * 40))
    writer.close()
    rng, place, records = np.random.default_rng(0), open_place(str(folder)), []
    for shard in corpus_shards(folder, "0" * 64, SHARD):
        truncated = np.zeros(shard.rows, dtype=np.bool_)
        vectors, lengths = unit(rng.standard_normal((shard.rows, D))), np.full(shard.rows, 9, dtype=np.int64)
        content = save({"vectors": vectors, "lengths": lengths, "truncated": truncated})
        place.write(shard.name, content)
        records.append(shard_record(shard, content, truncated))
    listed = tuple(records)
    record = EncodingRecord(
        version=1,
        encoder="0" * 64,
        dimension=D,
        rows=count,
        shard_rows=SHARD,
        shards=listed,
        digest=list_digest(listed),
    )
    return folder, ShardedVectors(folder, record)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Corpus]:
    folder = tmp_path_factory.mktemp("corpora")
    return [encoded(folder / str(count), count) for count in (SMALL, LARGE)]


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_peak_memory_is_independent_of_corpus(corpora: list[Corpus], read: Callable[[Corpus], object]) -> None:
    small, large = (peak(lambda corpus=corpus: read(corpus)) for corpus in corpora)
    assert large - small <= MOST * 4 * D * (LARGE - SMALL)


def peak(run: Callable[[], object]) -> int:
    """Bytes that Python and NumPy hold at most."""
    run()  # whatever is loaded or cached once
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
