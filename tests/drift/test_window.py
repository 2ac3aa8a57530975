"""The sliding window."""

import numpy as np

from taugate.drift.observations import Judgements, Observations, SlidingWindow
from tests.drift.similarities import traffic


def judged(start: int, count: int) -> Judgements:
    numbers = np.arange(start, start + count)
    same = numbers.astype(np.float32)
    return Judgements(numbers.astype(np.float64), numbers.astype(np.uint64), same, same)


def test_window_keeps_latest_rows() -> None:
    window = SlidingWindow[Judgements](10, seconds=1000)
    for start in range(0, 21, 7):
        window.append(judged(start, 7))
    assert np.concatenate([part.correct for part in window.at(20.0)]).tolist() == [*range(11, 21)]
    assert len(window) == 10


def test_window_drops_old_rows() -> None:
    window = SlidingWindow[Judgements](100, seconds=5)
    window.append(judged(0, 7))
    window.append(judged(7, 7))
    assert np.concatenate([part.correct for part in window.at(13.0)]).tolist() == [*range(8, 14)]
    assert window.at(100.0) == []
    assert len(window) == 0


def test_large_batch_is_truncated() -> None:
    window = SlidingWindow[Judgements](3, seconds=100)
    window.append(judged(0, 50))
    assert [part.correct.tolist() for part in window.at(50.0)] == [[47, 48, 49]]


def test_joined_columns_are_concatenated() -> None:
    assert Judgements.joined([judged(0, 2), judged(5, 1)]).correct.tolist() == [0, 1, 5]
    assert len(Observations.joined([traffic(np.random.default_rng(0), 3)] * 2)) == 6
