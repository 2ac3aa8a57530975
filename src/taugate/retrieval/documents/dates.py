"""ISO dates among metadata: texts that name a day or a moment, as seconds that can be compared."""

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_DAY_CHARACTERS = len("2024-05-31")
DAY = 86400.0  # seconds
# ISO 8601 as most software writes it: a day, which a time and an offset from UTC may follow. What fromisoformat takes
# beside it, such as 20240531, may be any number.
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[Zz]|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
EXAMPLE = "2024-05-31"  # in messages


def instant(text: str) -> float | None:
    """Return the moment that an ISO date names, in seconds since 1970; None for any other text.

    A day is its first moment, and a time without an offset is one of UTC. Exact to the microsecond until 2242.
    """
    if not _DATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper().replace(" Z", "Z"))
    except ValueError:  # there is no such day or time
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH).total_seconds()


def is_day(text: str) -> bool:
    """Return True if an ISO date names a whole day, not a moment of it."""
    return len(text) == _DAY_CHARACTERS


def written(seconds: float) -> str:
    """Return the ISO date of a moment, to the microsecond; the last moment of 9999 for any that is later."""
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        moment = _LATEST
    return moment.isoformat()
