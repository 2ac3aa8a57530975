"""Queries with Zipf-distributed repeats, and their variables."""

import numpy as np

NEUTRAL = np.array([0.5, 0.1])


def zipf(rng: np.random.Generator, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """A few are asked all the time, most of them once; keys of 64 bits."""
    words = rng.zipf(1.15, size=queries).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return words, rng.random((queries, 2))
