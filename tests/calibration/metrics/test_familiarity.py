"""Domain familiarity agrees with a literal transcription of the query embeddings paper, §6.2, eq. 5 and 6."""

import math

import numpy as np
import pytest

from taugate.calibration.metrics.embeddings import PARAPHRASES, QUERIES, domain_familiarity, text_familiarity


def similarity(x: list[float], y: list[float]) -> float:
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    return dot / math.sqrt(sum(a * a for a in x)) / math.sqrt(sum(b * b for b in y))


def test_familiarity_equals_paper_definition() -> None:
    rng = np.random.default_rng(0)
    texts = rng.standard_normal((QUERIES, 12)).astype(np.float32)  # of any length: sim is the cosine
    paraphrases = (texts[:, None] + rng.standard_normal((QUERIES, PARAPHRASES, 12))).astype(np.float32)
    m, n = len(texts), paraphrases.shape[1]
    tf = [
        sum(similarity(texts[i].tolist(), paraphrases[i, j].tolist()) for j in range(n)) / n  # eq. 5
        for i in range(m)
    ]
    assert text_familiarity(texts, paraphrases) == pytest.approx(tf, abs=1e-6)
    assert domain_familiarity(texts, paraphrases) == pytest.approx(sum(tf) / m, abs=1e-6)  # eq. 6


def test_familiarity_of_equal_and_orthogonal_paraphrases() -> None:
    texts = np.eye(3, dtype=np.float32)
    assert domain_familiarity(texts, np.repeat(texts[:, None], 3, axis=1)) == 1
    assert domain_familiarity(texts, np.repeat(np.roll(texts, 1, axis=0)[:, None], 3, axis=1)) == 0
    half = np.stack([texts, np.roll(texts, 1, axis=0)], axis=1)
    assert text_familiarity(texts, half).tolist() == [0.5, 0.5, 0.5]
