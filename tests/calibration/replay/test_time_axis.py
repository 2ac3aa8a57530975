"""The axis of time: round times in UTC, whatever the span."""

import itertools

import pytest

from taugate.calibration.replay.time_axis import TimeAxis

START = 1e9  # 2001-09-09 01:46:40 UTC, a Sunday
DAY = 86400.0


@pytest.mark.parametrize(
    ("seconds", "label", "ticks"),
    [
        (0, "2001-09-09", ["01:46:39", "01:46:40", "01:46:41"]),
        (100, "2001-09-09", ["01:47:00", "01:47:30", "01:48:00"]),
        (4000, "2001-09-09", ["02:00", "02:15", "02:30", "02:45"]),
        (DAY, "2001-09-09 to 2001-09-10", ["06:00", "12:00", "18:00", "10 Sep"]),
        (7 * DAY, "2001-09-09 to 2001-09-16", ["11 Sep", "13 Sep", "15 Sep"]),
        (30 * DAY, "2001-09-09 to 2001-10-09", ["10 Sep", "17 Sep", "24 Sep", "1 Oct", "8 Oct"]),
        (90 * DAY, "2001-09-09 to 2001-12-08", ["Oct 2001", "Nov 2001", "Dec 2001"]),
        (1000 * DAY, "2001-09-09 to 2004-06-05", ["Jan 2002", "Jul 2002", "Jan 2003", "Jul 2003", "Jan 2004"]),
        (8e8, "2001-09-09 to 2027-01-15", ["2005", "2010", "2015", "2020", "2025"]),
    ],
)
def test_time_ticks_are_round(seconds: float, label: str, ticks: list[str]) -> None:
    axis = TimeAxis.between(START, START + seconds)
    assert axis.label == label
    assert [text for _, text in axis.ticks()] == ticks
    assert all(axis.low <= at <= axis.high for at, _ in axis.ticks())


def test_time_tick_count_is_bounded() -> None:
    spans = [2.0**power for power in range(1, 38)]
    for seconds, start in itertools.product(spans, (0.0, START, 1.9e9)):
        assert 1 <= len(TimeAxis.between(start, start + seconds).ticks()) <= 7, seconds
