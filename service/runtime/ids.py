"""Ids of requests and replies: 128 random bits in hexadecimal.

The id of a reply to a key with a filter is half random and half a hash of that and of the filter. So whether a key may
judge a reply is known from the id alone, in every replica, and a reply of others looks like one that there never was.
"""

import hashlib
import os
from collections.abc import Iterator

from taugate.retrieval.documents.filters import Filter

_IDS_AT_ONCE = 256
_HALF = 16  # digits: of a million replies an hour, two have the same 64 bits once in 4,000 years


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


def reply_id(permitted: Filter) -> str:
    """32 hexadecimal digits; permitted: the filter of the key that the reply is for."""
    return new_id() if not permitted else _bound(new_id()[:_HALF], permitted)


def may_judge(permitted: Filter, query_id: str) -> bool:
    """Whether a reply with this id may have been for a key with this filter; a key without one may judge all."""
    return not permitted or query_id == _bound(query_id[:_HALF], permitted)


def _bound(digits: str, permitted: Filter) -> str:
    return digits + hashlib.sha256(f"{digits}{permitted!r}".encode()).hexdigest()[:_HALF]
