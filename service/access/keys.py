"""What is known of API keys: a name, a hash, scopes, a filter, a rate and an end; never a key itself.

A key is 256 random bits, so that nobody can find it by guessing, however fast a guess is checked: a plain SHA-256 is
enough. Argon2 and its like slow guesses down for passwords that people choose, and would cost every request tens of
milliseconds.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from taugate.errors import InputError
from taugate.retrieval.documents.conditions import Filter
from taugate.retrieval.documents.filter_schema import read_filter

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
