"""Lines for the people who run the server."""

import sys
from contextlib import suppress


def say(line: str) -> None:
    """Write a line to stderr; it is lost if nobody reads it.

    Args:
        line: Without a line break at its end.
    """
    if sys.stderr is not None:  # it is None if it was closed from the start
        with suppress(OSError):
            print(f"taugate-mcp: {line}", file=sys.stderr, flush=True)  # noqa: T201
