"""The time axis of a replay, with ticks at round times in UTC."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from taugate.calibration.charts.chart import Axis

_TIME_TICKS = 6  # maximum number of steps; a date is wider than a number
_DAY = 86400
_STEPS = (1, 2, 5, 10, 15, 30, *(60 * n for n in (1, 2, 5, 10, 15, 30)), *(3600 * n for n in (1, 2, 3, 6, 12)))
_DAYS = (1, 2, 3, 4, 7, 14)
_MONTHS = (1, 2, 3, 6, *(12 * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)))
_MONDAY = 4 * _DAY  # the first Monday after 1970-01-01, where weeks begin
_MIN_SPAN = 2.0  # seconds


@dataclass(frozen=True)
class TimeAxis(Axis):
    """A range of Unix times, labelled with its first and last day."""

    @classmethod
    def between(cls, start: float, end: float) -> Self:
        """Span the times from `start` to `end`; a single time gets a margin of a second on both sides."""
        if end - start < _MIN_SPAN:
            start, end = max(0.0, start - 1), end + 1
        first, last = (f"{_utc(at):%Y-%m-%d}" for at in (start, end))
        return cls(start, end, first if first == last else f"{first} to {last}")

    def ticks(self) -> list[tuple[float, str]]:
        """Return full seconds, minutes, hours, days, Mondays, months or years, with their texts."""
        min_step = (self.high - self.low) / _TIME_TICKS
        if min_step > _DAYS[-1] * _DAY:
            return self._months(min_step)
        step = next(
            step_seconds for step_seconds in (*_STEPS, *(days * _DAY for days in _DAYS)) if step_seconds >= min_step
        )
        offset = _MONDAY if step % (7 * _DAY) == 0 else 0
        first, last = (math.ceil((self.low - offset) / step), math.floor((self.high - offset) / step))
        return [(float(at), _text(at, step)) for at in (offset + n * step for n in range(first, last + 1))]

    def _months(self, min_step: float) -> list[tuple[float, str]]:
        step = next(months for months in _MONTHS if months * 30.4 * _DAY >= min_step)
        first, last = (moment.year * 12 + moment.month - 1 for moment in (_utc(self.low), _utc(self.high)))
        begun = [datetime(n // 12, n % 12 + 1, 1, tzinfo=UTC) for n in range(first, last + 1) if n % step == 0]
        form = "%b %Y" if step < 12 else "%Y"
        return [(moment.timestamp(), moment.strftime(form)) for moment in begun if moment.timestamp() >= self.low]


def _text(at: int, step: int) -> str:
    """Format midnight as the day, other times as the time of day."""
    moment = _utc(at)
    if at % _DAY == 0:
        return f"{moment.day} {moment:%b}"
    return f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
