"""Axes: where a value lies between two pixels, and round numbers to write along them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

Form = Literal["number", "percent", "none"]

_TICKS = 7  # at most so many steps: what a phone has room for


@dataclass(frozen=True)
class Axis:
    """A range of values with its label. form: how ticks are written, `none` for no ticks; log: decades, low > 0."""

    low: float
    high: float
    label: str
    form: Form = "number"
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], label: str, form: Form = "number", *, log: bool = False) -> Self:
        """The range of `values`, at least one; a single value gets room to both sides."""
        known = list(values)
        low, high = min(known), max(known)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            room = 0.1 * abs(low) or 0.5
            low, high = low - room, high + room
        return cls(low, high, label, form, log)

    def place(self, value: float, start: float, end: float) -> float:
        """The pixel of a value: `low` is at `start`, `high` at `end`."""
        share = (self._of(value) - self._of(self.low)) / (self._of(self.high) - self._of(self.low))
        return start + share * (end - start)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values from low to high, each as it is written."""
        if self.form == "none":
            return []
        if self.log:
            return [(value, self._text(value, value)) for value in self._decades()]
        step = _round_step((self.high - self.low) / _TICKS)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(number * step, self._text(number * step, step)) for number in range(first, last + 1)]

    def _of(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def _decades(self) -> list[float]:
        """Powers of ten; where there are fewer than three, their double and fivefold as well."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1,), (1, 2, 5)):
            found = [float(f"{factor}e{power}") for power in powers for factor in factors]
            inside = [value for value in found if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]
            if len(inside) >= 3:
                break
        return inside

    def _text(self, value: float, step: float) -> str:
        """As many digits as the step needs to be told from the next."""
        scale = 100 if self.form == "percent" else 1
        digits = max(0, -math.floor(math.log10(step * scale) + 1e-9))
        return f"{value * scale:z.{digits}f}" + (" %" if self.form == "percent" else "")


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, … times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
