"""One way to write a time, on the page and in the terminal."""

from datetime import UTC, datetime


def utc(at: float) -> str:
    """A Unix time in UTC, without saying so."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
