"""The adapter learns what pairs share, gives the same bytes again, and stops where there is nothing to learn from."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from taugate_adapt.adapter import MAX_STEPS, ContrastivePairs, fit, steps_within  # noqa: E402 (needs PyTorch)
from taugate_adapt.pairs import PairedTexts  # noqa: E402


def noisy_pairs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Queries and documents, 60 of each, that agree in the first 8 dimensions and have strong noise in the other 8."""
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((60, 8))
    sides = [np.hstack([meaning, 2 * rng.standard_normal((60, 8))]) for _ in range(2)]
    queries, documents = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
    return queries.astype(np.float32), documents.astype(np.float32)


def draw(queries: np.ndarray, documents: np.ndarray, relevant: list[np.ndarray]) -> ContrastivePairs:
    """Each query has a word of its own, which no document has."""
    texts = [f"query{row}" for row in range(60)]
    documents_texts = [f"document{row}" for row in range(60)]
    learned_from = PairedTexts(queries, texts, relevant, documents, documents_texts)
    return ContrastivePairs.draw(learned_from, np.random.default_rng(0))


def drawn(seed: int = 0) -> ContrastivePairs:
    return draw(*noisy_pairs(seed), [np.array([row]) for row in range(60)])


def first_ranks(weight: np.ndarray, seed: int) -> float:
    """The share of queries whose own document is the nearest."""
    queries, documents = (side @ weight.T for side in noisy_pairs(seed))
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    return float(((queries @ documents.T).argmax(axis=1) == np.arange(60)).mean())


def test_adapter_damps_unshared_noise() -> None:
    learned = list(fit(drawn(0), 64))[-1].weight
    assert first_ranks(learned, seed=1) > first_ranks(np.eye(16), seed=1) + 0.2


def test_checkpoints_are_powers_of_two() -> None:
    result = list(fit(drawn(), 20))
    assert [item.step for item in result] == [1, 2, 4, 8, 16]
    assert [item.loss for item in result] == sorted((item.loss for item in result), reverse=True)


def test_adapter_is_independent_of_threads() -> None:
    once = [item.weight.tobytes() for item in fit(drawn(), 8)]
    threads = torch.get_num_threads()
    torch.set_num_threads(3 if threads != 3 else 2)
    try:
        assert [item.weight.tobytes() for item in fit(drawn(), 8)] == once
    finally:
        torch.set_num_threads(threads)


def test_second_answers_are_ignored() -> None:
    queries, documents = noisy_pairs()
    relevant = [np.array([row]) for row in range(59)] + [np.array([58, 59])]
    pairs = draw(queries, documents, relevant)
    (query, document), *remaining = pairs.ignored.nonzero().tolist()
    assert (query, remaining) == (59, [])
    assert document in {58, 59} - {int(pairs.answers[59])}


def test_infinite_loss_stops_descent() -> None:
    queries, documents = noisy_pairs()
    queries[0] = np.nan
    relevant = [np.array([row]) for row in range(60)]
    assert list(fit(draw(queries, documents, relevant), 4)) == []


@pytest.mark.parametrize(("seconds", "steps"), [(-1.0, 0), (0.0, 0), (3600.0, MAX_STEPS)])
def test_remaining_time_decides_steps(seconds: float, steps: int) -> None:
    assert steps_within(drawn(), seconds) == steps
