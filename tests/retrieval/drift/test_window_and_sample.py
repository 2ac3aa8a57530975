"""What is kept of traffic, and what of it is shared."""

from collections.abc import Callable

import numpy as np
import pytest
from safetensors.numpy import load, save

from retrieval.drift.observations import Judgements, Observations
from retrieval.drift.sample import MOST, Sample, merged
from retrieval.drift.window import Window
from tests.retrieval.drift.similarities import traffic


def judged(start: int, count: int) -> Judgements:
    numbers = np.arange(start, start + count)
    return Judgements(numbers.astype(np.float64), numbers.astype(np.uint64), numbers.astype(np.float32))


def test_a_window_keeps_the_last_ones() -> None:
    window = Window[Judgements](10, seconds=1000)
    for start in range(0, 21, 7):
        window.append(judged(start, 7))
    assert np.concatenate([part.correct for part in window.at(20.0)]).tolist() == [*range(11, 21)]
    assert len(window) == 10


def test_and_none_that_are_too_old() -> None:
    window = Window[Judgements](100, seconds=5)
    window.append(judged(0, 7))
    window.append(judged(7, 7))
    assert np.concatenate([part.correct for part in window.at(13.0)]).tolist() == [*range(8, 14)]
    assert window.at(100.0) == []
    assert len(window) == 0


def test_one_batch_larger_than_the_window() -> None:
    window = Window[Judgements](3, seconds=100)
    window.append(judged(0, 50))
    assert [part.correct.tolist() for part in window.at(50.0)] == [[47, 48, 49]]


def test_a_sample_comes_back_as_it_was_and_no_larger_than_allowed() -> None:
    rng = np.random.default_rng(0)
    seen = traffic(rng, 3 * MOST)
    sample = Sample.of(seen, rng)
    assert (len(sample.rows), sample.count) == (3 * MOST, 3 * MOST)
    back = Sample.unpack(sample.pack(), seen.take(slice(0)))
    assert (len(back.rows), back.count) == (MOST, 3 * MOST)
    assert not back.rows.key.any()  # others do not learn which queries these are
    for name in {*back.rows.columns()} - {"key"}:
        column = back.rows.columns()[name]
        assert (column == sample.rows.columns()[name][:MOST]).all()
    assert set(back.rows.at) < set(seen.at)  # the same queries
    assert len(sample.pack()) < 100_000


def test_replicas_count_by_what_they_answered() -> None:
    """A busy replica that shares a tenth of what it saw, and a quiet one that shares all."""
    rng = np.random.default_rng(0)
    busy, quiet = traffic(rng, 20_000), traffic(rng, 1000, mean=0.2)
    shared = Sample.unpack(Sample.of(busy, rng).pack(), busy.take(slice(0)))
    together = merged([shared, Sample.of(quiet, rng)])
    assert len(together) == pytest.approx(MOST * 21 / 20, abs=1)
    truth = np.concatenate([busy.top, quiet.top]).mean()
    assert together.top.mean() == pytest.approx(truth, abs=0.01)


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    return lambda packed: save({**load(packed), name: change(load(packed)[name])})


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda packed: b"",
    "garbage": lambda packed: b"x" * 200,
    "cut short": lambda packed: packed[:-8],
    "no count": lambda packed: save({name: each for name, each in load(packed).items() if name != "count"}),
    "count of fewer": replaced("count", lambda count: count * 0),
    "count that is a fraction": replaced("count", lambda count: count.astype(np.float64)),
    "another K": replaced("top", lambda top: np.ascontiguousarray(top[:, :3])),
    "fewer rows": replaced("top", lambda top: top[:-1]),
    "float64": replaced("top", lambda top: top.astype(np.float64)),
    "not a number": replaced("top", lambda top: top * np.nan),
    "keys": lambda packed: save(load(packed) | {"key": np.zeros(20, dtype=np.uint64)}),
    "another column": lambda packed: save(load(packed) | {"more": np.zeros(3)}),
    "no rows' axis": replaced("kept", lambda kept: np.array(1.0, dtype=np.float32)),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_sample_is_told_from_one(change: Callable[[bytes], bytes]) -> None:
    rng = np.random.default_rng(0)
    seen = traffic(rng, 20)
    with pytest.raises(ValueError, match="sample"):
        Sample.unpack(change(Sample.of(seen, rng).pack()), seen.take(slice(0)))


def test_columns_joined() -> None:
    assert Judgements.joined([judged(0, 2), judged(5, 1)]).correct.tolist() == [0, 1, 5]
    assert len(Observations.joined([traffic(np.random.default_rng(0), 3)] * 2)) == 6
