"""Calibrations and traffic with known distributions of similarities."""

import numpy as np

from taugate.drift.observations import JudgedReplies, Judgements, Observations
from taugate.release.queries import Reference

K, TAU = 5, 0.45


def top(rng: np.random.Generator, queries: int, mean: float | np.ndarray = 0.6, spread: float = 0.1) -> np.ndarray:
    """Best first: normal around the mean, one for all or one for each, each further one lower."""
    steps = np.abs(rng.normal(0.05, 0.02, size=(queries, K)))
    best = rng.normal(mean, spread, size=queries)
    return (best[:, None] - np.cumsum(steps, axis=1)).astype(np.float32)


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


def traffic(
    rng: np.random.Generator, queries: int, mean: float | np.ndarray = 0.6, random: float = 0.1, spread: float = 0.1
) -> Observations:
    """Queries a second apart, none of them twice."""
    scores = top(rng, queries, mean, spread)
    return Observations(
        np.arange(queries, dtype=np.float64),
        keys(rng, queries),
        scores,
        rng.normal(random, 0.1, size=(queries, 4)).astype(np.float32),
        (scores >= TAU).sum(axis=1).astype(np.float32),
        np.empty((queries, 0), dtype=np.float32),
    )


def judged(rng: np.random.Generator, correct: np.ndarray) -> Judgements:
    """Judgements a second apart, none of them twice."""
    weights = np.ones(len(correct), dtype=np.float32)
    at = np.arange(len(correct), dtype=np.float64)
    return Judgements(at, keys(rng, len(correct)), correct.astype(np.float32), weights)


def replies(rng: np.random.Generator, count: int, share: float | np.ndarray) -> JudgedReplies:
    """Judged replies a second apart, to different queries, a share of which hold a relevant result."""
    relevant = (rng.random(count) < share).astype(np.float32)
    return JudgedReplies(np.arange(count, dtype=np.float64), keys(rng, count), relevant)


def bursts(rng: np.random.Generator, queries: int, length: int, apart: float) -> Observations:
    """Each of so many queries on one topic.

    Args:
        apart: Of the topics' means. All queries together are as at calibration.
    """
    topics = rng.normal(0.6, apart, size=queries // length + 2)
    first = rng.integers(length)  # the bursts begin anywhere in a block
    means = np.repeat(topics, length)[first : first + queries]
    return traffic(rng, queries, mean=means, spread=float(np.sqrt(0.1**2 - apart**2)))


def keys(rng: np.random.Generator, queries: int) -> np.ndarray:
    """All different, but for one chance in 10⁹ or so."""
    return rng.integers(0, 2**64, size=queries, dtype=np.uint64)
