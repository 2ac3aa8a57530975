"""Queries whose similarities have a distribution that is known, as a calibration and as traffic."""

import numpy as np

from retrieval.drift.observations import Observations
from retrieval.drift.reference import Reference

K, TAU = 5, 0.45


def top(rng: np.random.Generator, queries: int, mean: float = 0.6) -> np.ndarray:
    """Best first: normal around the mean, each further one lower."""
    steps = np.abs(rng.normal(0.05, 0.02, size=(queries, K)))
    return (rng.normal(mean, 0.1, size=(queries, 1)) - np.cumsum(steps, axis=1)).astype(np.float32)


def reference(rng: np.random.Generator, queries: int = 2000) -> Reference:
    scores = top(rng, queries)
    correct = scores[np.arange(queries), rng.integers(0, K, size=queries)]
    missed = rng.random(queries) < 0.1
    correct[missed] -= 0.3
    return Reference(
        top=scores,
        correct=correct,
        random=rng.normal(0.1, 0.1, size=queries).astype(np.float32),
        kept=(scores >= TAU).sum(axis=1),
        correct_kept=correct >= TAU,
    )


def traffic(rng: np.random.Generator, queries: int, mean: float = 0.6, random: float = 0.1) -> Observations:
    scores = top(rng, queries, mean)
    return Observations(
        np.arange(queries, dtype=np.float64),
        scores,
        rng.normal(random, 0.1, size=(queries, 4)).astype(np.float32),
        (scores >= TAU).sum(axis=1).astype(np.float32),
    )
