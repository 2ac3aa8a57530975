"""The top-K is exact even if candidates are as wrong as the bound allows."""

import numpy as np
import pytest

from taugate.policy.arrays import Float32
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE, Propose, exact_top_k
from taugate.retrieval.vectors import pair_similarity

N, D = 4000, 24


class Vectors:
    """What is scored."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def score(self, queries: Float32, positions: np.ndarray) -> Float32:
        return pair_similarity(queries, self.vectors, positions)

    def __len__(self) -> int:
        return len(self.vectors)


def unit(rng: np.random.Generator, count: int) -> np.ndarray:
    vectors = rng.standard_normal((count, D))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("bound", [1e-6, 0.05, 0.2, 2.0])
@pytest.mark.parametrize("members", [None, np.arange(7, N, 3), np.arange(10)], ids=["all", "some", "few"])
def test_top_k_is_proven_or_scans_all(bound: float, members: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    index, queries = Vectors(unit(rng, N)), unit(rng, 12)
    scores = (queries.astype(float) @ index.vectors.astype(float).T).astype(np.float32)
    allowed = np.arange(N) if members is None else members
    fetched: list[int] = []

    def propose(asked: Float32, fetch: int) -> tuple[np.ndarray, np.ndarray]:
        """The best by a score that is off, at random, by up to the bound."""
        fetched.append(fetch)
        exact = asked.astype(float) @ index.vectors[allowed].astype(float).T
        rough = exact + 0.99 * bound * rng.uniform(-1, 1, exact.shape)
        order = np.argsort(-rough, axis=1)[:, :fetch]
        return np.take_along_axis(rough, order[:, -1:], 1)[:, 0] + bound, allowed[order]

    for k in (1, 5, 50):
        top = exact_top_k(index, [propose], queries, k, members)
        order = allowed[np.argsort(-scores[:, allowed], axis=1, kind="stable")[:, :k]]
        np.testing.assert_array_equal(top.positions, order)
        np.testing.assert_array_equal(top.scores, np.take_along_axis(scores, order, 1))
    assert max(fetched) <= max(MAX_CANDIDATES, 50 + SPARE)
    assert (len(fetched) > 3) == (bound > 0.01 and len(allowed) > 10)


def test_next_proposer_proves_what_first_does_not() -> None:
    rng = np.random.default_rng(1)
    index, queries = Vectors(unit(rng, N)), unit(rng, 12)
    tried: list[str] = []

    def propose(name: str, bound: float) -> Propose:
        def best(some: Float32, fetch: int) -> tuple[np.ndarray, np.ndarray]:
            tried.append(name)
            exact = some.astype(float) @ index.vectors.T.astype(float)
            order = np.argsort(-exact, axis=1)[:, :fetch]
            return np.take_along_axis(exact, order[:, -1:], 1)[:, 0] + bound, order

        return best

    proposers = [propose("far", 2.0), propose("near", 1e-6), propose("unused", 1e-6)]
    top = exact_top_k(index, proposers, queries, 5)
    scores = (queries.astype(float) @ index.vectors.astype(float).T).astype(np.float32)
    np.testing.assert_array_equal(top.positions, np.argsort(-scores, axis=1, kind="stable")[:, :5])
    assert tried == ["far"] * 3 + ["near"]
