"""ISO dates in metadata: texts that name a day or a moment, converted to comparable seconds."""

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_DAY_CHARACTERS = len("2024-05-31")
DAY = 86400.0  # seconds
# ISO 8601 as most software writes it: a day, optionally with a time and an offset from UTC. fromisoformat also accepts
# forms such as 20240531, which may be other numbers.
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[Zz]|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
EXAMPLE = "2024-05-31"  # for messages


def instant(text: str) -> float | None:
    """Return the moment of an ISO date in seconds since 1970; None for any other text.

    A day counts as its first moment, and a time without an offset as UTC. Exact to the microsecond until 2242.
    """
    if not _DATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper().replace(" Z", "Z"))
    except ValueError:  # no such day or time exists
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH).total_seconds()


def is_day(text: str) -> bool:
    """Return whether an ISO date names a day without a time."""
    return len(text) == _DAY_CHARACTERS


def written(seconds: float) -> str:
    """Return the ISO date of a moment to the microsecond; later moments become the last one of 9999."""
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        moment = _LATEST
    return moment.isoformat()
