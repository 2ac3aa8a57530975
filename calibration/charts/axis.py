"""Axes of charts: where a value lies between two pixels, and round numbers to write along them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Self

Form = Literal["number", "percent", "none"]
_TICKS = 7  # at most so many steps: what a phone has room for
_TIME_TICKS = 6  # at most so many steps, as a date is wider than a number
_DAY = 86400
_STEPS = (1, 2, 5, 10, 15, 30, *(60 * n for n in (1, 2, 5, 10, 15, 30)), *(3600 * n for n in (1, 2, 3, 6, 12)))
_DAYS = (1, 2, 3, 4, 7, 14)
_MONTHS = (1, 2, 3, 6, *(12 * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)))
_MONDAY = 4 * _DAY  # the first one after 1970-01-01: weeks begin there
_LEAST = 2.0  # seconds


@dataclass(frozen=True)
class Axis:
    """A range of values with its label.

    low, high: the range; label: what it is of; form: how ticks are written, `none` for no ticks; odds: of probabilities
    between 0 and 1, by the logarithm of their odds: 0.01 and 0.001 are as far apart as 0.99 and 0.999.
    """

    low: float
    high: float
    label: str
    form: Form = "number"
    odds: bool = False

    @classmethod
    def around(cls, values: Iterable[float], label: str, form: Form = "number", *, odds: bool = False) -> Self:
        """Span `values`, at least one; a single value gets room to both sides.

        values: to be shown; label, form, odds: as of the class.
        """
        known = list(values)
        low, high = min(known), max(known)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            room = 0.1 * abs(low) or 0.5
            low, high = low - room, high + room
        return cls(low, high, label, form, odds)

    def place(self, value: float, start: float, end: float) -> float:
        """Return the pixel of a value: `low` is at `start`, `high` at `end`."""
        share = (self._of(value) - self._of(self.low)) / (self._of(self.high) - self._of(self.low))
        return start + share * (end - start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return round values from low to high, each as it is written."""
        if self.form == "none":
            return []
        if self.odds:
            return [(value, f"{value:g}") for value in self._probabilities()]
        step = _round_step((self.high - self.low) / _TICKS)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(number * step, self._text(number * step, step)) for number in range(first, last + 1)]

    def _of(self, value: float) -> float:
        return math.log(value / (1 - value)) if self.odds else value

    def _probabilities(self) -> list[float]:
        """Return tenths, hundredths, … from both ends; all tenths where these are too few."""
        ends = [10.0**-power for power in range(9, 0, -1)]
        few = [*ends, 0.5, *(1 - each for each in reversed(ends))]
        for values in (few, sorted({*few, 0.2, 0.3, 0.7, 0.8})):
            inside = [value for value in values if self.low <= value <= self.high]
            if len(inside) >= 3:
                break
        return inside

    def _text(self, value: float, step: float) -> str:
        """Write a tick with as many digits as the step needs to be told from the next."""
        scale = 100 if self.form == "percent" else 1
        digits = max(0, -math.floor(math.log10(step * scale) + 1e-9))
        return f"{value * scale:z.{digits}f}" + (" %" if self.form == "percent" else "")


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, … times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


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
