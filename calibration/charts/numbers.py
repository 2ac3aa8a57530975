"""How numbers are written on the page and in a terminal: the same value gives the same characters, and never −0."""

from taugate.retrieval.release.interval import Interval

NOTHING = "–"


def fixed(value: float | None, digits: int = 4) -> str:
    """So many digits after the point; a dash for what is not known."""
    return NOTHING if value is None else f"{value:z.{digits}f}"


def signed(value: float, digits: int = 4) -> str:
    """A difference, with its sign unless it rounds to nothing."""
    text = f"{value:+z.{digits}f}"
    return text.removeprefix("+") if float(text) == 0 else text


def percent(value: float | None, digits: int = 1) -> str:
    """A share in 0…1 as percent; the space does not break."""
    return NOTHING if value is None else f"{100 * value:z.{digits}f}\u00a0%"


def count(value: int | None) -> str:
    """A whole number, with commas."""
    return NOTHING if value is None else f"{value:,}"


def brief(value: int) -> str:
    """A whole number for a narrow place: thousands above 9,999."""
    return count(value) if value < 10_000 else f"{value / 1000:.0f}k"


def spread(value: Interval, digits: int = 4) -> str:
    """The 95 % interval around a mean."""
    return f"({fixed(value.lower, digits)}–{fixed(value.upper, digits)})"
