"""The axis of time that a replay is drawn on: round moments in UTC, whatever the span."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from taugate.calibration.charts.chart import Axis

_TIME_TICKS = 6  # at most so many steps, as a date is wider than a number
_DAY = 86400
_STEPS = (1, 2, 5, 10, 15, 30, *(60 * n for n in (1, 2, 5, 10, 15, 30)), *(3600 * n for n in (1, 2, 3, 6, 12)))
_DAYS = (1, 2, 3, 4, 7, 14)
_MONTHS = (1, 2, 3, 6, *(12 * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)))
_MONDAY = 4 * _DAY  # the first one after 1970-01-01: weeks begin there
_LEAST = 2.0  # seconds


@dataclass(frozen=True)
class TimeAxis(Axis):
    """A range of Unix times, whose label has the days from low to high."""

    @classmethod
    def between(cls, start: float, end: float) -> Self:
        """Span the times from `start` to `end`; a single moment gets a second to both sides, from 1970 on."""
        if end - start < _LEAST:
            start, end = max(0.0, start - 1), end + 1
        first, last = (f"{_utc(at):%Y-%m-%d}" for at in (start, end))
        return cls(start, end, first if first == last else f"{first} to {last}")

    def ticks(self) -> list[tuple[float, str]]:
        """Return full seconds, minutes, hours, days, Mondays, months or years, each as it is written."""
        least = (self.high - self.low) / _TIME_TICKS
        if least > _DAYS[-1] * _DAY:
            return self._months(least)
        step = next(each for each in (*_STEPS, *(days * _DAY for days in _DAYS)) if each >= least)
        offset = _MONDAY if step % (7 * _DAY) == 0 else 0
        first, last = (math.ceil((self.low - offset) / step), math.floor((self.high - offset) / step))
        return [(float(at), _text(at, step)) for at in (offset + n * step for n in range(first, last + 1))]

    def _months(self, least: float) -> list[tuple[float, str]]:
        step = next(each for each in _MONTHS if each * 30.4 * _DAY >= least)
        first, last = (each.year * 12 + each.month - 1 for each in (_utc(self.low), _utc(self.high)))
        begun = [datetime(n // 12, n % 12 + 1, 1, tzinfo=UTC) for n in range(first, last + 1) if n % step == 0]
        form = "%b %Y" if step < 12 else "%Y"
        return [(each.timestamp(), each.strftime(form)) for each in begun if each.timestamp() >= self.low]


def _text(at: int, step: int) -> str:
    """Write a day where one begins, the time of day otherwise."""
    moment = _utc(at)
    if at % _DAY == 0:
        return f"{moment.day} {moment:%b}"
    return f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
