"""Hard negatives on texts and vectors whose answers are known, among them answers that nobody labelled."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taugate_adapt.pairs import HardNegatives, PairedTexts

# Of each pair the first answers the query, and so does the copy, which has no label.
TEXTS = [
    "the roof is tiled in spring",
    "the roof is tiled in early spring",
    "gardens need water in summer",
    "tiles of clay and of stone",
    "a bill is paid in thirty days",
    "nothing about it",
]
QUERY = "when is the roof tiled"
RNG = np.random.default_rng(0)


def units(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def vectors(*similarities: float) -> np.ndarray:
    """Documents with these similarities to the query, which is the first axis."""
    return np.array([[item, (1 - item**2) ** 0.5] for item in similarities], dtype=np.float32)


def mined(similarities: tuple[float, ...], relevant: list[int], count: int = 2) -> HardNegatives:
    query = np.array([[1, 0]], dtype=np.float32)
    documents = vectors(*similarities)
    return PairedTexts(query, [QUERY], [np.array(relevant)], documents, TEXTS).mine(count, np.random.default_rng(0))


def test_unlabelled_answer_is_excluded() -> None:
    result = mined((0.7, 0.72, 0.6, 0.5, 0.4, 0.3), [0])
    assert [item.tolist() for item in result.suspects] == [[]], "it is longer, so that BM25 has it below the answer"
    result = mined((0.7, 0.72, 0.6, 0.5, 0.4, 0.3), [1])
    assert [item.tolist() for item in result.suspects] == [[0]]
    assert result.positions.tolist() == [[2, 3]]


def test_encoder_only_match_is_hardest_negative() -> None:
    result = mined((0.5, 0.48, 0.9, 0.8, 0.4, 0.3), [1])
    assert result.positions.tolist() == [[2, 3]]
    assert [item.tolist() for item in result.suspects] == [[0]]


def test_bm25_only_match_is_negative() -> None:
    result = mined((0.5, 0.9, 0.3, 0.2, 0.1, 0.0), [1])
    assert result.positions.tolist() == [[0, 2]]
    assert [item.tolist() for item in result.suspects] == [[]]


def test_no_negatives_if_all_documents_answer() -> None:
    assert mined((0.9, 0.8, 0.7, 0.6, 0.5, 0.4), [0, 1, 2, 3, 4, 5]).positions.tolist() == [[-1, -1]]


def test_random_documents_fill_negatives() -> None:
    result = mined((0.9, 0.8, 0.7, 0.6, 0.5, 0.4), [0, 1, 2, 3], count=5)
    assert result.positions[0, :2].tolist() == [4, 5]
    assert set(result.positions[0].tolist()) == {4, 5}


@given(st.integers(1, 60), st.integers(1, 6), st.integers(0, 1000))
def test_answers_and_suspects_are_no_negatives(size: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents, queries = units(rng.standard_normal((size, 4))), units(rng.standard_normal((5, 4)))
    texts = [" ".join(rng.choice(["roof", "tile", "bill", "water"], 4)) for _ in range(size + 5)]
    relevant = [np.sort(rng.permutation(size)[: rng.integers(1, size + 1)]) for _ in range(5)]
    pairs = PairedTexts(queries, texts[size:], relevant, documents, texts[:size])
    once, again = (pairs.mine(count, np.random.default_rng(1)) for _ in range(2))
    assert once.positions.tobytes() == again.positions.tobytes()
    assert once.positions.shape == (5, count)
    for positions, suspects, answers in zip(once.positions, once.suspects, relevant, strict=True):
        assert not np.isin(positions, answers).any()
        assert not np.isin(suspects, answers).any()
        hard = positions[: max(0, min(count, min(size, 50) - len(answers) - len(suspects)))]
        assert not np.isin(hard, suspects).any()
        assert (positions < 0).all() == (len(answers) == size)
