"""API keys: their JSON format, how they are read from the settings, and the checks before the service listens.

Only the SHA-256 of a key is stored, never the key itself. A key has 256 random bits, so it cannot be guessed, however
fast a guess is checked. Argon2 and similar functions slow down guesses at passwords that people choose; here they would
only cost every request tens of milliseconds.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from taugate.errors import InputError
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.documents.filters import Filter
from taugate.service.settings import Settings

KeyScope = Literal["search", "feedback", "admin", "metrics"]
# These scopes show or change state that concerns all documents, so a key with a filter cannot have them.
_UNFILTERED_SCOPES: frozenset[KeyScope] = frozenset({"metrics", "admin"})
_VARIABLE = "TAUGATE_KEYS"
_REMEDY = "docs/access.md shows the form, and `taugate key new` writes an entry"


def _read_key_filter(value: object) -> Filter:
    """Read a filter. It must have a condition, because an empty one would permit all documents, perhaps by mistake."""
    permitted = read_filter(value)
    if not permitted:
        raise PydanticCustomError("no_condition", "permits all documents; name a field, or leave the filter out")
    return permitted


class ApiKey(BaseModel):
    """An API key that requests are checked against: an entry of the key list in JSON (docs/access.md).

    Attributes:
        name: Name of the key in logs, metrics and Redis.
        sha256: SHA-256 of the key, 64 hexadecimal digits.
        scopes: The kinds of request that the key may make.
        queries_per_second: Rate of the key, None for the default of the service.
        expires: None for never.
        filter: Condition on the documents that the key can see, () for all documents.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    scopes: Annotated[list[KeyScope], Field(min_length=1)]
    queries_per_second: Annotated[float, Field(gt=0)] | None = None
    expires: AwareDatetime | None = None
    filter: Annotated[Any, PlainValidator(_read_key_filter)] = ()


_Keys = TypeAdapter(list[ApiKey])


def digest(key: bytes) -> bytes:
    """Return the SHA-256 of a key, 32 bytes."""
    return hashlib.sha256(key).digest()


def parse_keys(text: bytes, source: str) -> list[ApiKey]:
    """Parse a JSON list of keys in UTF-8; messages name its source, a file or variable.

    Raises:
        InputError: If the text is not a list of keys. The message does not quote the text.
    """
    try:
        return _Keys.validate_json(text)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False, include_context=False)[0]
        entry, *field = detail["loc"] or ("",)
        place = f", entry {entry + 1}" if isinstance(entry, int) else ""
        named = f": {'.'.join(map(str, field))}" if field else ""
        raise InputError(f"{source}{place}{named}: {detail['msg']}; {_REMEDY}") from None


def check_keys(keys: Sequence[ApiKey], source: str) -> None:
    """Check a list of keys as a whole; messages name its source, a file or variable.

    Raises:
        InputError: If two entries have the same name or key, or one has a filter together with a scope that concerns
            all documents.
    """
    names: set[str] = set()
    digests: set[str] = set()
    for number, key in enumerate(keys, 1):
        if key.name in names:
            raise InputError(f"{source}, entry {number}: another key is already named {key.name}; rename one")
        if key.sha256 in digests:
            raise InputError(f"{source}, entry {number}: {key.name} repeats an earlier key; remove one of them")
        if key.filter and (unfiltered := _UNFILTERED_SCOPES.intersection(key.scopes)):
            raise InputError(
                f"{source}, entry {number}: {key.name} has a filter, but the scope {min(unfiltered)} concerns all "
                "documents; create a separate key without a filter for it"
            )
        names.add(key.name)
        digests.add(key.sha256)


def keys_required(settings: Settings) -> bool:
    """Return whether requests need a key: they do once a list of keys is configured, even an empty one."""
    return settings.access.keys_file is not None or settings.access.keys is not None


def read_keys(settings: Settings) -> list[ApiKey]:
    """Read the keys of TAUGATE_KEYS_FILE and TAUGATE_KEYS.

    Raises:
        InputError: If they cannot be read or are inconsistent. The message names the file or variable, and the entry.
    """
    keys: list[ApiKey] = []
    sources = []
    if (file := settings.access.keys_file) is not None:
        sources.append(str(file))
        keys += parse_keys(_read_file(file), sources[-1])
    if settings.access.keys is not None:
        sources.append(_VARIABLE)
        keys += parse_keys(settings.access.keys.get_secret_value().encode(), sources[-1])
    check_keys(keys, " and ".join(sources))
    return keys


def check_access(settings: Settings) -> None:
    """Check the access settings before the service listens.

    Raises:
        InputError: If the keys cannot be read, or if other machines can reach the address while no keys are configured
            and TAUGATE_ALLOW_UNAUTHENTICATED is off.
    """
    if keys_required(settings):
        read_keys(settings)
    elif not (settings.access.allow_unauthenticated or settings.listen.on_loopback):
        raise InputError(
            f"other machines can reach {settings.listen.host or 'all addresses'}, and no API keys are configured: set "
            "TAUGATE_KEYS_FILE to a key file (`taugate key new` writes one), or accept every client with "
            "TAUGATE_ALLOW_UNAUTHENTICATED=true"
        )


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; TAUGATE_KEYS_FILE must name a key file, which `taugate key new` writes"
        ) from error
