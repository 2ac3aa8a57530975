"""Blocks of distinct queries, against their rules in plain loops."""

import pickle
import statistics
from collections import Counter
from typing import Any

import numpy as np
import pytest

from taugate.drift.blocks import Blocks, Fifth
from tests.drift.repeated import NEUTRAL, zipf
from tests.drift.similarities import keys


def literal(query_keys: list[int], values: list[list[float]], size: int) -> list[tuple[int, list[float], int, Any]]:
    """Row, mean, queries and block of every fifth."""
    recent: list[dict[int, int]] = []
    counts: dict[int, int] = {}
    this: dict[int, int] = {}
    counted: list[list[float]] = []
    ends = [size * fifth // 5 for fifth in range(6)]
    fifths: list[tuple[int, list[float], int, Any]] = []
    for row, (key, value) in enumerate(zip(query_keys, values, strict=True)):
        if key in this:
            this[key] += 1
            continue
        this[key] = 1
        weight = 1.0
        if key in counts:
            weight = min(1.0, statistics.median(counts.values()) / counts[key])
        counted.append([weight * x + (1 - weight) * n for x, n in zip(value, NEUTRAL, strict=True)])
        if len(this) not in ends[1:]:
            continue
        start = ends[ends.index(len(this)) - 1]
        mean, queries = average(counted[start:]), len(this) - start
        if len(this) < size:
            fifths.append((row, mean, queries, None))
            continue
        fifths.append((row, mean, queries, average(counted)))
        recent.append(this)
        while sum(len(block) for block in recent) > 4000 and len(recent) > 1:
            recent.pop(0)
        counts = {}
        for block in recent:
            for other, times in block.items():
                counts[other] = counts.get(other, 0) + times
        this, counted = {}, []
    return fifths


def average(rows: list[list[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def check(fifths_found: list[Fifth], expected: list[tuple[int, list[float], int, Any]]) -> None:
    assert [(fifth.row, fifth.queries, fifth.block is None) for fifth in fifths_found] == [
        (row, queries, block is None) for row, _, queries, block in expected
    ]
    for fifth, (_, mean, _, block) in zip(fifths_found, expected, strict=True):
        assert fifth.mean == pytest.approx(mean, abs=1e-12)
        assert fifth.block is None or fifth.block == pytest.approx(block, abs=1e-12)


@pytest.mark.parametrize(("size", "queries"), [(25, 20_000), (200, 20_000), (203, 20_000), (5000, 60_000)])
@pytest.mark.slow
def test_blocks_follow_literal_rules(size: int, queries: int) -> None:
    query_keys, values = zipf(np.random.default_rng(0), queries)
    expected = literal(query_keys.tolist(), values.tolist(), size)
    assert len([block for *_, block in expected if block is not None]) >= 3
    check([*Blocks(NEUTRAL, size).feed(query_keys, values)], expected)


@pytest.mark.parametrize("cuts", [[1, 2, 40, 41, 500], [*range(0, 3000, 7)], [0, 0, 2999]])
def test_blocks_do_not_depend_on_batches(cuts: list[int]) -> None:
    query_keys, values = zipf(np.random.default_rng(1), 3000)
    complete = [*Blocks(NEUTRAL, 100).feed(query_keys, values)]
    assert len(complete) > 50
    blocks = Blocks(NEUTRAL, 100)
    start, pieces = 0, []
    for part, rows in zip(np.split(values, cuts), np.split(query_keys, cuts), strict=True):
        pieces += [
            (start + fifth.row, fifth.mean.tolist(), fifth.queries, fifth.block) for fifth in blocks.feed(rows, part)
        ]
        start += len(rows)
    check(complete, pieces)


def test_distinct_queries_have_equal_weight() -> None:
    rng = np.random.default_rng(2)
    values = rng.random((400, 2))
    fifths = [*Blocks(NEUTRAL).feed(keys(rng, 400), values)]
    assert [fifth.row for fifth in fifths] == [*range(39, 400, 40)]
    assert fifths[4].block == pytest.approx(values[:200].mean(axis=0))
    assert fifths[6].mean == pytest.approx(values[240:280].mean(axis=0))


@pytest.mark.parametrize("different", [1, 10])
def test_repeated_queries_never_complete_block(different: int) -> None:
    blocks = Blocks(NEUTRAL)
    query_keys = np.resize(np.arange(different, dtype=np.uint64), 10_000)
    assert [*blocks.feed(query_keys, np.ones((10_000, 2)))] == []
    assert len(blocks.pack()["keys"]) == different


def test_first_answer_of_repeated_query_counts() -> None:
    query_keys = np.repeat(np.arange(200, dtype=np.uint64), 2)
    values = np.tile([[0.0, 0.0], [1.0, 1.0]], (200, 1))
    (*_, last) = Blocks(NEUTRAL).feed(query_keys, values)
    assert last.row == 398
    assert last.block == pytest.approx([0, 0])


@pytest.mark.parametrize("every", [2, 200], ids=["every second query", "once in a block"])
def test_frequent_probe_hardly_moves_block(every: int) -> None:
    """It is 1 where the calibration has .5 and .1, and all else is as at calibration."""
    rng = np.random.default_rng(3)
    queries = 100 * 200 * every // (every - 1) + every
    query_keys, values = keys(rng, queries), np.tile(NEUTRAL, (queries, 1))
    query_keys[::every], values[::every] = 7, 1.0
    means = np.array([fifth.block for fifth in Blocks(NEUTRAL).feed(query_keys, values) if fifth.block is not None])
    assert len(means) >= 100
    moved = np.abs(means - NEUTRAL).max(axis=1)
    assert moved[0] == pytest.approx(0.9 / 200)  # nobody knows yet that it is one
    assert moved[20:].max() < 1 / 1000


def test_load_test_hardly_moves_block() -> None:
    """A load test of as many requests as all users send."""
    rng = np.random.default_rng(4)
    query_keys, values = keys(rng, 20_000), np.tile(NEUTRAL, (20_000, 1))
    query_keys[::2], values[::2] = np.resize(np.arange(10, dtype=np.uint64), 10_000), 1.0
    means = np.array([fifth.block for fifth in Blocks(NEUTRAL).feed(query_keys, values) if fifth.block is not None])
    assert np.abs(means[20:] - NEUTRAL).max() < 1 / 1000


def test_equally_frequent_queries_keep_their_weight() -> None:
    """Values are 1 and the calibration has 0, so that the mean of a block is the mean weight."""
    rng = np.random.default_rng(5)
    query_keys = rng.integers(0, 300, size=100_000, dtype=np.uint64)
    blocks = [
        fifth.block for fifth in Blocks(np.zeros(1)).feed(query_keys, np.ones((100_000, 1))) if fifth.block is not None
    ]
    assert len(blocks) > 200
    assert 0.85 < np.mean(blocks[20:]) < 1


@pytest.mark.parametrize("size", [25, 200, 5000])
def test_block_memory_is_bounded(size: int) -> None:
    """New queries for ever, each several times."""
    rng = np.random.default_rng(6)
    blocks = Blocks(NEUTRAL, size)
    kept, taken = [], []
    for _ in range(20):
        query_keys = np.repeat(keys(rng, 1500), 2)
        for _fifth in blocks.feed(query_keys, np.ones((3000, 2))):
            pass
        packed = blocks.pack()
        kept.append(len(packed["keys"]))
        taken.append(len(pickle.dumps(blocks)))
    assert max(kept) < max(4000, size) + size
    assert max(taken[8:]) < 1.3 * max(taken[:8])  # with what is not packed
    assert len(packed["lengths"]) <= 4000 // size + 2


def test_block_size_may_change_between_blocks() -> None:
    rng = np.random.default_rng(10)
    blocks = Blocks(NEUTRAL)
    rows = []
    for fifth in blocks.feed(keys(rng, 1500), rng.random((1500, 2))):
        if fifth.block is not None:
            rows.append(fifth.row + 1)
            blocks.size = 400
    assert rows == [200, 600, 1000, 1400]


def test_query_weight_is_fixed_within_block() -> None:
    """However often a query is asked in a block, that block does not know; the next one does."""
    rng = np.random.default_rng(11)
    blocks = Blocks(np.zeros(1))
    first, second = (np.concatenate([np.repeat(np.uint64(7), 100), keys(rng, 199)]) for _ in range(2))
    (*_, before) = blocks.feed(first, (first == 7).astype(np.float64)[:, None])
    (*_, after) = blocks.feed(second, (second == 7).astype(np.float64)[:, None])
    assert before.block == pytest.approx([1 / 200])
    assert after.block == pytest.approx([1 / 100 / 200])
    assert Counter(first.tolist())[7] == 100
