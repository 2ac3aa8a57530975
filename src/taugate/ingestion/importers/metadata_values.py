"""Values of any source as metadata that filters can use: scalars, and lists of strings as tags."""

import math
from collections.abc import Iterable

from taugate.retrieval.documents.store import MetadataValue


def metadata_value(value: object) -> MetadataValue:
    """Return a value as metadata, None where it is missing, not finite, too large, or holds other values.

    Args:
        value: Of a record or an object. Dates become text as in ISO 8601; a list, tuple or set of strings becomes tags.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half of a surrogate pair is no character
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple | set | frozenset):
        strings = [each for each in value if isinstance(each, str)]
        ordered = sorted(strings) if isinstance(value, set | frozenset) else strings
        return tags(ordered) if len(strings) == len(value) else None
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat()) if callable(isoformat) else None


def tags(strings: Iterable[str]) -> list[str] | None:
    """Return strings as tags: each once, in the order given, without space around it; None where none is left."""
    trimmed = (" ".join(each.encode("utf-8", "replace").decode().split()) for each in strings)
    return [*dict.fromkeys(each for each in trimmed if each)] or None


def split_tags(text: str) -> list[str] | None:
    """Return the tags of a text in which commas or semicolons divide them, as in keywords of a web page."""
    return tags(text.replace(";", ",").split(","))
