"""Messages to the operator of the server."""

import sys
from contextlib import suppress


def say(line: str) -> None:
    """Write a line to stderr, given without a line break; it is lost if stderr is closed."""
    if sys.stderr is not None:  # None if it was closed before the start
        with suppress(OSError):
            print(f"taugate-mcp: {line}", file=sys.stderr, flush=True)  # noqa: T201
