"""Markdown for the pages: tables, shares, and the rows "wanted" and "measured" under a table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def share(value: float, digits: int = 3) -> str:
    """Format a share without its leading zero: 0.25 becomes .250."""
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def with_error(value: float, error: float, digits: int = 3) -> str:
    """Format a share and its standard error as `value ± error`, each with so many digits behind the point."""
    return f"{share(value, digits)} ± {share(error, digits)}"


def verdict(*, reached: bool) -> str:
    """Say "reached", or "**not reached**", of a target."""
    return "reached" if reached else "**not reached**"


@dataclass(frozen=True)
class Target:
    """A bound that a measured figure should keep.

    Attributes:
        what: The figure in words.
        measured: Its value.
        at_least: The bounds, None for none.
        at_most: The bounds, None for none.
        unit: Written behind all three.
    """

    what: str
    measured: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    def row(self) -> list[str]:
        """Format the target as a row: what, wanted, measured, verdict."""
        low, high = self.at_least, self.at_most
        wanted = " and ".join(
            f"{words} {_figure(bound)}{self.unit}"
            for words, bound in (("at least", low), ("at most", high))
            if bound is not None
        )
        reached = (low is None or self.measured >= low) and (high is None or self.measured <= high)
        return [self.what, wanted, f"{_figure(self.measured)}{self.unit}", verdict(reached=reached)]


def targets(rows: Sequence[Target]) -> str:
    """Format the table of targets, one row each."""
    return table(["target", "wanted", "measured", ""], [each.row() for each in rows])


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
