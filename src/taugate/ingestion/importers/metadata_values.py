"""Values of any source as metadata for filters: scalars, and lists of strings as tags."""

import math
from collections.abc import Iterable

from taugate.retrieval.documents.store import MetadataValue


def metadata_value(value: object) -> MetadataValue:
    """Return a value as metadata, None if it is missing, not finite, too large, or contains other values.

    Args:
        value: Value of a record or an object. Dates become text in ISO 8601; a list, tuple or set of strings becomes
            tags.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half of a surrogate pair is not a character
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple | set | frozenset):
        strings = [item for item in value if isinstance(item, str)]
        ordered = sorted(strings) if isinstance(value, set | frozenset) else strings
        return tags(ordered) if len(strings) == len(value) else None
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat()) if callable(isoformat) else None


def tags(strings: Iterable[str]) -> list[str] | None:
    """Return strings as tags: without duplicates, in order, without space around them; None if none is left."""
    trimmed = (" ".join(string.encode("utf-8", "replace").decode().split()) for string in strings)
    return [*dict.fromkeys(tag for tag in trimmed if tag)] or None


def split_tags(text: str) -> list[str] | None:
    """Return the tags of a text divided by commas or semicolons, as in keywords of a web page."""
    return tags(text.replace(";", ",").split(","))
