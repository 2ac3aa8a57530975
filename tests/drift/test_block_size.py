"""Autocorrelation times of series with a known one, and the block sizes that follow from them."""

from collections.abc import Callable

import numpy as np
import pytest

from taugate.drift.blocks import Blocks, BlockSize, autocorrelation_time
from tests.drift.similarities import keys

Packed = dict[str, np.ndarray]


def autoregressive(rng: np.random.Generator, rho: float, length: int) -> np.ndarray:
    """AR(1) of variance 1, from its stationary distribution; its integrated autocorrelation time is known."""
    noise = rng.normal(0, np.sqrt(1 - rho**2), size=length)
    series = np.empty(length)
    series[0] = rng.normal()
    for at in range(1, length):
        series[at] = rho * series[at - 1] + noise[at]
    return series


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.9])
def test_autocorrelation_time_of_autoregressive_series(rho: float) -> None:
    """(1 + ρ) / (1 − ρ)."""
    series = autoregressive(np.random.default_rng(0), rho, 50_000)
    assert autocorrelation_time(series[:, None]) == pytest.approx((1 + rho) / (1 - rho), rel=0.15)


def test_autocorrelation_time_pools_variables() -> None:
    """Weighed by their variance: one that hardly moves says hardly anything."""
    rng = np.random.default_rng(1)
    slow, quick = autoregressive(rng, 0.8, 50_000), rng.normal(size=50_000)
    assert autocorrelation_time(np.column_stack([slow, slow])) == pytest.approx(autocorrelation_time(slow[:, None]))
    assert autocorrelation_time(np.column_stack([slow, quick / 100])) == pytest.approx(9, rel=0.15)
    assert autocorrelation_time(np.column_stack([slow, quick])) == pytest.approx(5, rel=0.15)  # half of 9 and of 1


def test_autocorrelation_time_of_equal_bursts() -> None:
    """Twenty values of the same mean each: Σ (1 − k/20) over all lags from −19 to 19 is 20."""
    series = np.repeat(np.random.default_rng(2).normal(size=5000), 20)
    assert autocorrelation_time(series[:, None]) == pytest.approx(20, rel=0.15)


@pytest.mark.parametrize(
    "series", [np.zeros(100), np.full(100, 0.3), np.resize([0.0, 1.0], 1000)], ids=["0", ".3", "to and fro"]
)
def test_autocorrelation_time_is_at_least_one(series: np.ndarray) -> None:
    assert autocorrelation_time(series[:, None]) == pytest.approx(1)


def sizes(means: np.ndarray, rng: np.random.Generator) -> list[int]:
    """Of every block, of queries whose variable is 1 with these probabilities."""
    values = (rng.random(len(means)) < means).astype(np.float64)[:, None]
    blocks, size = Blocks(np.array([0.5])), BlockSize(1)
    block_sizes = []
    for fifth in blocks.feed(keys(rng, len(means)), values):
        size.observe(fifth.mean, fifth.queries)
        if fifth.block is not None:
            block_sizes.append(blocks.size)
            blocks.size = size.size
    return block_sizes


def bursts(rng: np.random.Generator, queries: int, length: int) -> np.ndarray:
    return np.repeat(rng.uniform(0.1, 0.9, size=queries // length), length)


def test_independent_queries_keep_smallest_blocks() -> None:
    rng = np.random.default_rng(3)
    block_sizes = sizes(np.full(200_000, 0.5), rng)
    assert np.mean(np.array(block_sizes) == 200) > 0.95
    assert max(block_sizes) <= 600


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_block_size_is_twice_burst_length(seed: int) -> None:
    """Estimated from the last 20,000 queries, which have twenty bursts: within a factor of 1.6 on average."""
    rng = np.random.default_rng(seed)
    block_sizes = np.array(sizes(bursts(rng, 300_000, 1000), rng))
    assert block_sizes[0] == 200
    assert set(block_sizes) <= {*range(200, 3201, 200)}
    later = block_sizes[block_sizes.cumsum() > 100_000]
    assert 2000 / 1.6 < np.average(later, weights=later) < 2000 * 1.6


def test_blocks_shrink_after_bursts() -> None:
    rng = np.random.default_rng(5)
    block_sizes = sizes(np.concatenate([bursts(rng, 100_000, 1000), np.full(100_000, 0.5)]), rng)
    assert max(block_sizes) > 800
    assert np.mean(block_sizes[-10:]) < 400


def test_little_traffic_keeps_smallest_block() -> None:
    rng = np.random.default_rng(6)
    assert set(sizes(bursts(rng, 2000, 1000), rng)) == {200}


def seen(steps: int, variables: int = 2) -> BlockSize:
    size = BlockSize(variables)
    rng = np.random.default_rng(7)
    for mean in np.repeat(rng.random((steps // 10 + 1, variables)), 10, axis=0)[:steps]:
        size.observe(mean, 40)
    size.observe(rng.random(variables), 17)
    return size


@pytest.mark.parametrize("steps", [0, 49, 60, 700])
def test_restored_block_size_continues_identically(steps: int) -> None:
    size, other = seen(steps), seen(30)
    other.restore(size.pack())
    rng = np.random.default_rng(8)
    for mean in rng.random((100, 2)):
        assert size.size == other.size
        for each in (size, other):
            each.observe(mean, 23)
    assert len(size.pack()["steps"]) <= 500


HOSTILE: dict[str, Callable[[Packed], Packed]] = {
    "nothing": lambda packed: {},
    "one array more": lambda packed: packed | {"more": np.zeros(3)},
    "float32": lambda packed: packed | {"steps": packed["steps"].astype(np.float32)},
    "another variable": lambda packed: packed | {"steps": packed["steps"][:, :1]},
    "one row": lambda packed: packed | {"steps": packed["steps"].ravel()},
    "not a number": lambda packed: packed | {"steps": packed["steps"] * np.nan},
    "steps beyond 1": lambda packed: packed | {"steps": packed["steps"] * 1e200},
    "steps below 0": lambda packed: packed | {"steps": -packed["steps"]},
    "a sum without end": lambda packed: packed | {"rest": packed["rest"] + np.array([np.inf, 0, 0])},
    "a sum of more than all": lambda packed: packed | {"rest": packed["rest"] + np.array([1e9, 0, 0])},
    "a sum below 0": lambda packed: packed | {"rest": packed["rest"] - np.array([1e9, 0, 0])},
    "a count below 0": lambda packed: packed | {"rest": packed["rest"] * [1, 1, -1]},
    "a count that is a fraction": lambda packed: packed | {"rest": packed["rest"] + [0, 0, 0.5]},
    "a count that is full": lambda packed: packed | {"rest": packed["rest"] + [0, 0, 40]},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_invalid_block_size_state_is_refused(change: Callable[[Packed], Packed]) -> None:
    size = seen(60)
    before = size.pack()
    with pytest.raises(ValueError, match="not the state of a block size"):
        size.restore(change(seen(100).pack()))
    assert all(np.array_equal(array, before[name]) for name, array in size.pack().items())
