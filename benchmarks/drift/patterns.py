"""Orders in which queries come, as rows of a pool: bursts, favourites, repeats, day and night.

Every pattern without drift leaves the marginal distribution as it is: a topic is drawn by its size, a query of it evenly.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Pattern = Callable[[int, np.random.Generator], Rows]
DAY = 8000  # queries in a day of the patterns with days


def independent(of: int) -> Pattern:
    """Independent queries, drawn with replacement."""
    return lambda queries, rng: rng.integers(0, of, size=queries)


def bursts(groups: Rows, length: int) -> Pattern:
    """Runs of queries of one group each."""
    members = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]

    def draw(queries: int, rng: np.random.Generator) -> Rows:
        chosen = groups[rng.integers(0, len(groups), size=-(-queries // length))]
        return np.concatenate([rng.choice(members[group], size=length) for group in chosen])[:queries]

    return draw


def zipf(of: int, exponent: float = 1.1) -> Pattern:
    """Draw traffic in which a few queries are frequent and most are rare; which ones is drawn anew each time."""
    popularity = 1 / np.arange(1, of + 1) ** exponent

    def draw(queries: int, rng: np.random.Generator) -> Rows:
        return rng.permutation(of)[rng.choice(of, size=queries, p=popularity / popularity.sum())]

    return draw


def repeated(of: int, times: int = 10_000) -> Pattern:
    """10,000 ordinary queries, then one query 10,000 times, and so on."""

    def draw(queries: int, rng: np.random.Generator) -> Rows:
        rows = rng.integers(0, of, size=queries)
        for start in range(times, queries, 2 * times):
            rows[start : start + times] = rows[start]
        return rows

    return draw


def circle(of: int, size: int = 10) -> Pattern:
    """Repeat the same ten queries in turn, and nothing else."""
    return lambda queries, rng: rng.permutation(of)[:size][np.arange(queries) % size]


def load_test(of: int, share: float, odd: Rows | None = None) -> Pattern:
    """Ten queries in turn, a share of the traffic, between ordinary ones."""

    def draw(queries: int, rng: np.random.Generator) -> Rows:
        ten = rng.choice(np.arange(of) if odd is None else odd, size=10, replace=False)
        rows, tested = rng.integers(0, of, size=queries), rng.random(queries) < share
        rows[tested] = ten[np.arange(tested.sum()) % 10]
        return rows

    return draw


def days(half: NDArray[np.bool_], swing: float, sundays: bool = False) -> Pattern:
    """Queries by day come from one half of the pool, queries by night from the other."""
    by_day, by_night = np.flatnonzero(half), np.flatnonzero(~half)

    def draw(queries: int, rng: np.random.Generator) -> Rows:
        time = np.arange(queries) / DAY
        wave = np.where(np.floor(time) % 7 == 6, -1.0, 1.0) if sundays else np.sin(2 * np.pi * time)
        daily = rng.random(queries) < (1 + swing * wave) / 2
        return np.where(daily, rng.choice(by_day, size=queries), rng.choice(by_night, size=queries))

    return draw


def mixed(usual: Pattern, strange: Pattern, share: float) -> Pattern:
    """Mix a share of strange queries into the traffic, independently."""

    def draw(queries: int, rng: np.random.Generator) -> Rows:
        return np.where(rng.random(queries) < share, strange(queries, rng), usual(queries, rng))

    return draw


def moved(pattern: Pattern, rows: int) -> Pattern:
    """Shift a pattern to a pool that comes after `rows` others."""
    return lambda queries, rng: rows + pattern(queries, rng)
