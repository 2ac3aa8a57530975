"""Ids of requests and of replies."""

import hashlib
import os
import re
from collections.abc import Iterator

from taugate.retrieval.documents.filters import Filter

_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # safe in a log line and in a header
_IDS_AT_ONCE = 256
_HALF_DIGITS = 16  # 64 bits: at a million replies an hour, two collide once in 4,000 years


def _generate_ids() -> Iterator[str]:
    # Random bytes for many ids are read at a time: each call releases the interpreter lock, and a busy process has to
    # wait to get it back.
    while True:
        digits = os.urandom(16 * _IDS_AT_ONCE).hex()
        yield from (digits[start : start + 32] for start in range(0, len(digits), 32))


_ids = _generate_ids()


def new_id() -> str:
    """Return a new random id of 128 bits, 32 hexadecimal digits."""
    return next(_ids)


def request_id(header: bytes) -> str:
    """Return the id that the header X-Request-ID proposes, or a new one if it is missing or unsafe."""
    return header.decode("ascii") if _ACCEPTED_ID.fullmatch(header) else new_id()


def reply_id(permitted: Filter) -> str:
    """Return a new id for a reply, 32 hexadecimal digits.

    For a key with a filter, half of the id is random, and half is a hash of the random half and the filter. So every
    replica can tell from the id alone whether a key may judge a reply, and an id that was issued to another key is
    indistinguishable from an unknown one.
    """
    return new_id() if not permitted else _with_hash(new_id()[:_HALF_DIGITS], permitted)


def may_judge(permitted: Filter, query_id: str) -> bool:
    """Return whether a key may judge a reply: if the key has no filter, or the filter that the reply was made for."""
    return not permitted or query_id == _with_hash(query_id[:_HALF_DIGITS], permitted)


def _with_hash(digits: str, permitted: Filter) -> str:
    return digits + hashlib.sha256(f"{digits}{permitted!r}".encode()).hexdigest()[:_HALF_DIGITS]
