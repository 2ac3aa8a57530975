"""What is known of API keys: a name, a hash, scopes, a filter, a rate and an end; never a key itself.

A key is 256 random bits, so that nobody can find it by guessing, however fast a guess is checked: a plain SHA-256 is
enough. Argon2 and its like slow guesses down for passwords that people choose, and would cost every request tens of
milliseconds.
"""

import hashlib
import ipaddress
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

Scope = Literal["search", "feedback", "admin", "metrics"]
_OF_ALL: frozenset[Scope] = frozenset({"metrics", "admin"})  # what these show, or change, is everybody's
_REMEDY = "docs/access.md has the form, and `taugate key new` writes an entry"


def _permission(value: object) -> Filter:
    """A filter with one condition at least: one without any would permit everything, perhaps by mistake."""
    permitted = read_filter(value)
    if not permitted:
        raise PydanticCustomError("no_condition", "permits all documents; name a field, or leave the filter out")
    return permitted


class KeyEntry(BaseModel):
    """A key as it is written into a file."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]  # it goes into log lines, metrics and Redis
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    queries_per_second: Annotated[float, Field(gt=0)] | None = None
    expires: AwareDatetime | None = None
    filter: Annotated[Any, PlainValidator(_permission)] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """digest: SHA-256 of the key; rate: queries per second, None where it names none; expires: Unix time, or None.

    filter: the documents that there are for this key, all of them where it has no condition.
    """

    name: str
    digest: bytes
    scopes: frozenset[Scope]
    rate: float | None = None
    expires: float | None = None
    filter: Filter = ()


_Entries = TypeAdapter(list[KeyEntry])


def digest(key: bytes) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key).digest()


def parse_entries(text: bytes, where: str) -> list[KeyEntry]:
    """Entries of a JSON list; where: its name. Raises InputError, which repeats nothing of what is in it."""
    try:
        return _Entries.validate_json(text)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False, include_context=False)[0]
        entry, *field = detail["loc"] or ("",)
        place = f", entry {entry + 1}" if isinstance(entry, int) else ""
        named = f": {'.'.join(map(str, field))}" if field else ""
        raise InputError(f"{where}{place}{named}: {detail['msg']}; {_REMEDY}") from None


def keys_of(entries: Sequence[KeyEntry], where: str) -> tuple[Key, ...]:
    """Keys of entries. Raises InputError where two have one name, or are one key, and for scopes beyond a filter."""
    names: set[str] = set()
    digests: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if entry.name in names:
            raise InputError(f"{where}, entry {number}: there is a key named {entry.name} before it; rename one")
        if entry.sha256 in digests:
            raise InputError(f"{where}, entry {number}: {entry.name} is the same key as one before it; remove one")
        if entry.filter and (beyond := _OF_ALL.intersection(entry.scopes)):
            raise InputError(
                f"{where}, entry {number}: {entry.name} has a filter, and the scope {min(beyond)} is about all "
                "documents; make a key of its own for that, without a filter"
            )
        names.add(entry.name)
        digests.add(entry.sha256)
    return tuple(
        Key(
            entry.name,
            bytes.fromhex(entry.sha256),
            frozenset(entry.scopes),
            entry.queries_per_second,
            None if entry.expires is None else entry.expires.timestamp(),
            entry.filter,
        )
        for entry in entries
    )


Mark = tuple[int, int, int]  # changes when a file does: a new one in its place has another inode
_VARIABLE = "TAUGATE_KEYS"


def configured(settings: Settings) -> bool:
    """Whether keys are asked for, even where there are none yet."""
    return settings.access.keys_file is not None or settings.access.keys is not None


def read_keys(settings: Settings) -> tuple[Key, ...]:
    """Keys of both places. Raises InputError, which names the place and the entry."""
    entries, places = [], []
    if settings.access.keys_file is not None:
        places.append(str(settings.access.keys_file))
        entries += parse_entries(_content(settings.access.keys_file), places[-1])
    if settings.access.keys is not None:
        places.append(_VARIABLE)
        entries += parse_entries(settings.access.keys.get_secret_value().encode(), places[-1])
    return keys_of(entries, " and ".join(places))


def mark(path: Path) -> Mark | None:
    """What tells whether the file changed; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def check(settings: Settings) -> None:
    """What has to be so before anything listens.

    Raises InputError for keys that cannot be read, and for an address that others reach without keys in force.
    """
    if configured(settings):
        read_keys(settings)
    elif not (settings.access.allow_unauthenticated or _is_loopback(settings.listen.host)):
        raise InputError(
            f"other machines reach {settings.listen.host or 'all addresses'}, and there are no keys: name a file of "
            "them with TAUGATE_KEYS_FILE (`taugate key new` makes one), or let anyone in with "
            "TAUGATE_ALLOW_UNAUTHENTICATED=true"
        )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; TAUGATE_KEYS_FILE has to name a file of keys, as `taugate key new` makes one"
        ) from error


def _is_loopback(host: str) -> bool:
    """A name other than localhost may stand for any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
