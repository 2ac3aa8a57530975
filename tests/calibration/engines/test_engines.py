"""A corpus on disk is searched as in memory, in bounded memory; an interrupted upload leaves nothing behind."""

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from taugate.calibration import engines
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.encoding.shards import EncodingRecord, corpus_shards, list_digest, shard_record
from taugate.calibration.engines import ShardedHybridIndex, ShardedIndex, corpus_rows, engine_record, ensure_uploaded
from taugate.calibration.metrics.embeddings import isotropy
from taugate.calibration.progress import Job
from taugate.calibration.query_set.measure import _distance_of, _first_passages, cosine_distance
from taugate.errors import EngineUnavailable, ReleaseError, TaugateError
from taugate.policy.arrays import Float32, moments, require_in_memory
from taugate.release.engine import EngineRecord
from taugate.retrieval.documents.store import Document, DocumentWriter
from taugate.retrieval.engines.engine import Rows
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import hybrid_vectors
from taugate.storage.object_store import open_place
from tests.vectors import unit

N, D, SHARD = 1000, 24, 128


class Shards:
    """Vectors that are never handed out as a whole."""

    def __init__(self, vectors: Float32) -> None:
        self._vectors, self.shape = vectors, vectors.shape

    def __getitem__(self, positions: np.ndarray, /) -> Float32:
        return self._vectors[positions]

    def blocks(self) -> Iterator[tuple[int, Float32]]:
        for first in range(0, len(self._vectors), SHARD):
            yield first, self._vectors[first : first + SHARD]


@pytest.fixture(scope="module")
def vectors() -> Float32:
    found = unit(np.random.default_rng(3).standard_normal((N, D)))
    found[5::97] = found[5]  # copies in every shard
    return found


def test_sharded_search_matches_flat_search(vectors: Float32) -> None:
    queries = np.concatenate([vectors[5:6], unit(np.random.default_rng(4).standard_normal((20, D)))])
    exact, sharded = FlatIndex.build(vectors), ShardedIndex(Shards(vectors))
    for k in (1, 10, 200, N + 1):  # fewer than a shard has, and more
        truth, found = exact.search(queries, k), sharded.search(queries, k)
        assert found.positions.tolist() == truth.positions.tolist()
        assert found.scores.tobytes() == truth.scores.tobytes()
    assert len(sharded) == N
    pairs = np.array([[3, 999, 3]] * len(queries))
    assert sharded.score(queries, pairs).tobytes() == exact.score(queries, pairs).tobytes()


def test_sharded_hybrid_search_matches_hybrid_search(vectors: Float32) -> None:
    rng = np.random.default_rng(7)
    texts = [" ".join(f"w{word}" for word in rng.zipf(1.3, 20).clip(max=500)) for _ in range(N)]
    texts[3] = ""
    questions = [*texts[:30:3], "", "unheard", "w1"]
    words = LexicalIndex.of(texts)
    queries = hybrid_vectors(unit(rng.standard_normal((len(questions), D))), questions)
    for weight in (0.3, 2.0):
        exact = HybridIndex(FlatIndex.build(vectors), words, weight)
        sharded = ShardedHybridIndex(ShardedIndex(Shards(vectors)), words, weight)
        for k in (1, 10, 200, N + 1):
            truth, found = exact.search(queries, k), sharded.search(queries, k)
            assert found.positions.tolist() == truth.positions.tolist()
            assert found.scores.tobytes() == truth.scores.tobytes()
        assert sharded.search(queries[:0], 10).positions.shape == (0, 10)


def test_sharded_measures_match_in_memory(vectors: Float32) -> None:
    for one, other in zip(moments(Shards(vectors)), moments(vectors), strict=True):
        assert np.allclose(one, other, rtol=1e-12, atol=1e-12)
    spread, of_all = isotropy(Shards(vectors)), isotropy(vectors)
    assert (spread.i_a, spread.i_b) == pytest.approx((of_all.i_a, of_all.i_b), rel=1e-12)
    parents = np.arange(N, dtype=np.int32) // 3 * 3
    for divided in (None, parents):
        kept = vectors if divided is None else vectors[::3]
        assert _distance_of(_first_passages(Shards(vectors), divided)) == pytest.approx(
            cosine_distance(kept), rel=1e-12
        )


def test_moments_of_array_are_exact(vectors: Float32) -> None:
    mean, _ = moments(vectors)
    assert mean.tobytes() == vectors.mean(axis=0, dtype=np.float64).tobytes()


def test_sharded_vectors_cannot_be_materialized(vectors: Float32) -> None:
    assert require_in_memory(vectors) is vectors
    with pytest.raises(TypeError, match="read in blocks"):
        require_in_memory(Shards(vectors))


ROWS, WIDTH = 256, 128
SMALL, LARGE = 4 * ROWS, 32 * ROWS
MOST = 0.1  # of the vectors that the large corpus has more

Corpus = tuple[Path, ShardedVectors]
READS: dict[str, Callable[[Corpus], object]] = {
    "record": lambda corpus: engine_record("pgvector", *corpus, Job()),
    "upload": lambda corpus: [len(rows.documents) for _, rows in corpus_rows(*corpus)],
    "exact search": lambda corpus: ShardedIndex(corpus[1]).search(unit(np.ones((20, WIDTH))), 10),
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
    for shard in corpus_shards(folder, "0" * 64, ROWS):
        truncated = np.zeros(shard.rows, dtype=np.bool_)
        vectors, lengths = unit(rng.standard_normal((shard.rows, WIDTH))), np.full(shard.rows, 9, dtype=np.int64)
        content = save({"vectors": vectors, "lengths": lengths, "truncated": truncated})
        place.write(shard.name, content)
        records.append(shard_record(shard, content, truncated))
    listed = tuple(records)
    record = EncodingRecord(
        version=1,
        encoder="0" * 64,
        dimension=WIDTH,
        rows=count,
        shard_rows=ROWS,
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
    assert large - small <= MOST * 4 * WIDTH * (LARGE - SMALL)


def peak(run: Callable[[], object]) -> int:
    """Bytes that Python and NumPy hold at most."""
    run()  # whatever is loaded or cached once
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


RECORD = EngineRecord(kind="milvus", rows=2, dimension=4, shards=("a",), sample="b")
Fault = Callable[..., Any]


class Fake:
    """An engine without collections, one of whose methods fails; keeps the names of those that were called."""

    kind = "milvus"

    def __init__(self, method: str, error: Exception) -> None:
        self.called: list[str] = []
        self._method, self._error = method, error

    def __getattr__(self, method: str) -> Fault:
        def answer(*_: object) -> Any:
            self.called.append(method)
            if method == self._method:
                raise self._error
            return []

        return answer


def uploaded(engine: Fake, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    rows = Rows(np.zeros((2, 4), dtype=np.float32), [])
    monkeypatch.setattr(engines, "corpus_rows", lambda spool, vectors: iter([(0, rows)]))
    with pytest.raises(TaugateError):
        ensure_uploaded(engine, RECORD, Path(), None, Job(print))  # type: ignore[arg-type]
    return engine.called


def test_concurrent_upload_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    called = uploaded(Fake("create", ReleaseError("the engine already has a collection")), monkeypatch)
    assert called == ["names", "create"]


@pytest.mark.parametrize("method", ["upload", "finish"])
def test_unfinished_upload_is_dropped(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = uploaded(Fake(method, EngineUnavailable("away")), monkeypatch)
    assert called[-2:] == [method, "drop"]


def test_finished_unverified_upload_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    called = uploaded(Fake("collection", EngineUnavailable("away")), monkeypatch)
    assert called == ["names", "create", "upload", "finish", "collection"]
