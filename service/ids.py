"""Ids of requests and answers: 128 random bits in hexadecimal."""

import os
from collections.abc import Iterator

_IDS_AT_ONCE = 256


def _ids() -> Iterator[str]:
    # From the system's generator, many at a time: each question lets go of the interpreter, which a busy process has to
    # wait for.
    while True:
        digits = os.urandom(16 * _IDS_AT_ONCE).hex()
        yield from (digits[start : start + 32] for start in range(0, len(digits), 32))


_endless = _ids()


def new_id() -> str:
    """32 hexadecimal digits."""
    return next(_endless)
