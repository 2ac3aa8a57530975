"""Ids of requests and replies: 128 bits in hexadecimal, random but for replies to a key with a filter.

The id of such a reply is half random and half a hash of that half and of the filter. So every replica can tell from the
id alone whether a key may judge a reply, and the reply of another key looks like one that never existed.
"""

import hashlib
import os
from collections.abc import Iterator

from taugate.retrieval.documents.filters import Filter

_IDS_AT_ONCE = 256
_HALF_DIGITS = 16  # of a million replies an hour, two have the same 64 bits once in 4,000 years


def _generate_ids() -> Iterator[str]:
    # The system's generator is asked for many at a time: each call releases the interpreter's lock, and a busy process
    # waits to get it back.
    while True:
        digits = os.urandom(16 * _IDS_AT_ONCE).hex()
        yield from (digits[start : start + 32] for start in range(0, len(digits), 32))


_ids = _generate_ids()


def new_id() -> str:
    """Return a new random id of 32 hexadecimal digits."""
    return next(_ids)


def reply_id(permitted: Filter) -> str:
    """Return a new id for a reply, 32 hexadecimal digits.

    permitted: filter of the key that the reply is for, () for none.
    """
    return new_id() if not permitted else _with_hash(new_id()[:_HALF_DIGITS], permitted)


def may_judge(permitted: Filter, query_id: str) -> bool:
    """Tell whether a key may judge a reply, which is so where it has no filter, or the one that the reply was for.

    permitted: filter of the key, () for none; query_id: id of the reply, as the caller sent it.
    """
    return not permitted or query_id == _with_hash(query_id[:_HALF_DIGITS], permitted)


def _with_hash(digits: str, permitted: Filter) -> str:
    return digits + hashlib.sha256(f"{digits}{permitted!r}".encode()).hexdigest()[:_HALF_DIGITS]
