"""API keys: how they are written down, read from the settings, and checked before the service listens.

Only the SHA-256 of a key is kept, never the key itself. A key has 256 random bits, so that nobody can find it by
guessing, however fast a guess is checked. Argon2 and its like slow down guesses at passwords that people choose; here
they would only cost every request tens of milliseconds.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from taugate.errors import InputError
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.documents.filters import Filter
from taugate.service.settings import Settings

KeyScope = Literal["search", "feedback", "admin", "metrics"]
# These scopes show or change what concerns all documents, so that a key with a filter cannot have them.
_UNFILTERED_SCOPES: frozenset[KeyScope] = frozenset({"metrics", "admin"})
_VARIABLE = "TAUGATE_KEYS"
_REMEDY = "docs/access.md shows the form, and `taugate key new` writes an entry"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as requests are checked against it.

    Attributes:
        name: How logs, metrics and Redis call it.
        digest: SHA-256 of the key, 32 bytes.
        scopes: What it may be used for.
        rate: Queries a second, None for the default of the service.
        expires: Unix time in seconds, None for never.
        filter: The documents that exist for this key, () for all.
    """

    name: str
    digest: bytes
    scopes: frozenset[KeyScope]
    rate: float | None = None
    expires: float | None = None
    filter: Filter = ()


def _read_key_filter(value: object) -> Filter:
    """Read a filter, which needs a condition: without any it would permit all documents, perhaps by mistake."""
    permitted = read_filter(value)
    if not permitted:
        raise PydanticCustomError("no_condition", "permits all documents; name a field, or leave the filter out")
    return permitted


class KeyEntry(BaseModel):
    """A key as the list of keys has it in JSON (docs/access.md)."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]  # it goes into log lines, metrics and Redis
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    scopes: Annotated[list[KeyScope], Field(min_length=1)]
    queries_per_second: Annotated[float, Field(gt=0)] | None = None
    expires: AwareDatetime | None = None
    filter: Annotated[Any, PlainValidator(_read_key_filter)] = ()


_Entries = TypeAdapter(list[KeyEntry])


def digest(key: bytes) -> bytes:
    """Hash a key for keeping and for comparison.

    Args:
        key: The key as it is sent.

    Returns:
        Its SHA-256, 32 bytes.
    """
    return hashlib.sha256(key).digest()


def parse_entries(text: bytes, where: str) -> list[KeyEntry]:
    """Parse a JSON list of keys.

    Args:
        text: JSON in UTF-8.
        where: Name of its place, for messages.

    Raises:
        InputError: , which repeats nothing of the text.
    """
    try:
        return _Entries.validate_json(text)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False, include_context=False)[0]
        entry, *field = detail["loc"] or ("",)
        place = f", entry {entry + 1}" if isinstance(entry, int) else ""
        named = f": {'.'.join(map(str, field))}" if field else ""
        raise InputError(f"{where}{place}{named}: {detail['msg']}; {_REMEDY}") from None


def keys_from_entries(entries: Sequence[KeyEntry], where: str) -> tuple[ApiKey, ...]:
    """Convert entries to keys, in their order.

    Args:
        entries: As `parse_entries` returns them.
        where: Name of their place, for messages.

    Raises:
        InputError: Where two have the same name or are the same key, and where one has a filter and a scope that is
            about all documents.
    """
    names: set[str] = set()
    digests: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if entry.name in names:
            raise InputError(f"{where}, entry {number}: there is a key named {entry.name} before it; rename one")
        if entry.sha256 in digests:
            raise InputError(f"{where}, entry {number}: {entry.name} is the same key as one before it; remove one")
        if entry.filter and (beyond := _UNFILTERED_SCOPES.intersection(entry.scopes)):
            raise InputError(
                f"{where}, entry {number}: {entry.name} has a filter, and the scope {min(beyond)} is about all "
                "documents; make a key of its own for that, without a filter"
            )
        names.add(entry.name)
        digests.add(entry.sha256)
    return tuple(
        ApiKey(
            entry.name,
            bytes.fromhex(entry.sha256),
            frozenset(entry.scopes),
            entry.queries_per_second,
            None if entry.expires is None else entry.expires.timestamp(),
            entry.filter,
        )
        for entry in entries
    )


def keys_required(settings: Settings) -> bool:
    """Tell whether requests need a key, which they do as soon as a list of keys is configured, even an empty one.

    Args:
        settings: Of the service.
    """
    return settings.access.keys_file is not None or settings.access.keys is not None


def read_keys(settings: Settings) -> tuple[ApiKey, ...]:
    """Read the keys of TAUGATE_KEYS_FILE and TAUGATE_KEYS.

    Args:
        settings: Of the service.

    Raises:
        InputError: , which names the place and the entry.
    """
    entries, places = [], []
    if settings.access.keys_file is not None:
        places.append(str(settings.access.keys_file))
        entries += parse_entries(_read_file(settings.access.keys_file), places[-1])
    if settings.access.keys is not None:
        places.append(_VARIABLE)
        entries += parse_entries(settings.access.keys.get_secret_value().encode(), places[-1])
    return keys_from_entries(entries, " and ".join(places))


def check_access(settings: Settings) -> None:
    """Check before anything listens that the keys can be read and that nobody is let in without one by mistake.

    Args:
        settings: Of the service.

    Raises:
        InputError: For keys that cannot be read, and where other machines can reach the address, no keys are configured
            and TAUGATE_ALLOW_ANYONE is off.
    """
    if keys_required(settings):
        read_keys(settings)
    elif not (settings.access.allow_unauthenticated or settings.listen.on_loopback):
        raise InputError(
            f"other machines reach {settings.listen.host or 'all addresses'}, and there are no keys: name a file of "
            "them with TAUGATE_KEYS_FILE (`taugate key new` makes one), or let anyone in with "
            "TAUGATE_ALLOW_UNAUTHENTICATED=true"
        )


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; TAUGATE_KEYS_FILE has to name a file of keys, as `taugate key new` makes one"
        ) from error
