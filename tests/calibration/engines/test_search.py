"""What is read from a corpus in shards equals what is read from an array; searches too, to the bit."""

from collections.abc import Iterator

import numpy as np
import pytest

from taugate.calibration.engines import ShardedHybridIndex, ShardedIndex
from taugate.calibration.metrics.embeddings import isotropy
from taugate.calibration.query_set.measure import _distance_of, _first_passages, cosine_distance
from taugate.policy.arrays import Float32, moments, require_in_memory
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import hybrid_vectors
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
