"""Texts whose words are as frequent as those of a language, and vectors that are near if texts share words."""

import numpy as np

from taugate.retrieval.index.words import terms
from tests.vectors import unit


def zipf_texts(rng: np.random.Generator, count: int, vocabulary: int = 3000, length: int = 30) -> list[str]:
    """Draw texts of about `length` words; the word of rank r is 1/(r + 2.7) as frequent (Mandelbrot)."""
    weights = 1 / (np.arange(vocabulary) + 2.7)
    drawn = rng.choice(vocabulary, (count, 2 * length), p=weights / weights.sum())
    return [" ".join(f"w{word}" for word in row[: rng.integers(1, 2 * length)]) for row in drawn.tolist()]


def text_vectors(texts: list[str], dimension: int) -> np.ndarray:
    """Sum a random vector for each word, and one for the text itself, (n, dimension) unit float32."""
    of_words = np.random.default_rng(5).standard_normal((4096, dimension))
    vectors = [of_words[terms(text) % 4096].sum(axis=0) + of_words[len(text) % 4096] for text in texts]
    return unit(np.array(vectors))
