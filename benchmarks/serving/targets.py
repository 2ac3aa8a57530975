"""Rows "wanted" and "measured" under a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from page import table, verdict


@dataclass(frozen=True)
class Target:
    """What an issue wants of a figure: at least a bound, or at most. unit: written behind both."""

    what: str
    measured: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    def row(self) -> list[str]:
        """As a row of the table."""
        low, high = self.at_least, self.at_most
        wanted = " and ".join(
            f"{words} {_figure(bound)}{self.unit}"
            for words, bound in (("at least", low), ("at most", high))
            if bound is not None
        )
        reached = (low is None or self.measured >= low) and (high is None or self.measured <= high)
        return [self.what, wanted, f"{_figure(self.measured)}{self.unit}", verdict(reached=reached)]


def targets(rows: Sequence[Target]) -> str:
    """The table."""
    return table(["target", "wanted", "measured", ""], [each.row() for each in rows])


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
