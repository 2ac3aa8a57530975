"""Authorization of requests by API key and host name: the format of keys, how they are read, what each may do.

Only the SHA-256 of a key is stored, never the key itself. A key has 256 random bits, so it cannot be guessed, however
fast a guess is checked. Argon2 and similar functions slow down guesses at passwords that people choose; here they would
only cost every request tens of milliseconds.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from taugate.errors import InputError
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.documents.filters import Filter
from taugate.service.errors import Forbidden, Unauthorized
from taugate.service.settings import Settings

if TYPE_CHECKING:  # load what the command `key` does not need
    from prometheus_client import Counter

    from taugate.retrieval.index.top_k import Fields
    from taugate.service.metrics import Metrics

_FileStamp = tuple[int, int, int]  # modification time, inode, size: a file that replaces another has a new inode
_log = logging.getLogger(__name__)
_POLL_SECONDS = 2.0  # between two stats of the key file: a removed key is refused after at most this long
_MAX_SHOWN_CHARS = 100  # of a host name in a message
_CACHED_HOSTS = 128  # more names than any deployment has
_NO_KEY = "no API key: send the header Authorization: Bearer KEY, or X-API-Key: KEY"
_NO_ADMIN_KEY = (
    "needs a key with the scope admin, and no keys are configured: set TAUGATE_KEYS_FILE to a key file "
    "(`taugate key new` writes one); SIGHUP reloads without a key"
)

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
    """An API key that requests are checked against: an entry of the key list in JSON (docs/access.md)."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    scopes: Annotated[list[KeyScope], Field(min_length=1)]
    queries_per_second: Annotated[float, Field(gt=0)] | None = None
    expires: AwareDatetime | None = None
    # condition on the documents that the key can see, () for all documents
    filter: Annotated[Any, PlainValidator(_read_key_filter)] = ()


_Keys = TypeAdapter(list[ApiKey])


def digest(key: bytes) -> bytes:
    """Return the SHA-256 of a key, 32 bytes."""
    return hashlib.sha256(key).digest()


def parse_keys(text: bytes, source: str) -> list[ApiKey]:
    """Parse a JSON list of keys in UTF-8; messages name its source, a file or variable."""
    try:
        return _Keys.validate_json(text)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False, include_context=False)[0]
        entry, *field = detail["loc"] or ("",)
        place = f", entry {entry + 1}" if isinstance(entry, int) else ""
        named = f": {'.'.join(map(str, field))}" if field else ""
        raise InputError(f"{source}{place}{named}: {detail['msg']}; {_REMEDY}") from None


def check_keys(keys: Sequence[ApiKey], source: str) -> None:
    """Check a list of keys as a whole; messages name its source, a file or variable."""
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
    """Read the keys of TAUGATE_KEYS_FILE and TAUGATE_KEYS."""
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
    """Check the access settings before the service listens."""
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


class Authorizer:
    """Decides which requests are authorized; belongs to one event loop.

    Keys can be reloaded at any time; if the new ones cannot be read, the old ones remain in force. A release, or a
    list of keys, is rejected if the filter of a key names a field that the release lacks, because it would be
    undefined what that key may see.
    """

    def __init__(self, settings: Settings, metrics: "Metrics") -> None:
        """Read the keys, if any are configured."""
        self._settings, self._metrics = settings, metrics
        self._required = keys_required(settings)
        self._keys: Sequence[ApiKey] = ()
        self._fields: Fields | None = None  # of the release in service
        self._file_stamp: _FileStamp | None = None
        self._requests: dict[str, Counter] = {}  # by key name, because looking up a series takes longer than counting
        if self._required:
            self.reload()

    def reload(self) -> bool:
        """Reload the keys, and return False if they cannot be read. Until a first list was read, no key is valid."""
        if not self._required:
            return True
        self._file_stamp = self._stamp_file()
        try:
            keys = read_keys(self._settings)
            if self._fields is not None:
                _check_filters(keys, self._fields)
        except InputError as error:
            self._metrics.keys_reload_failed.set(1)
            _log.error("cannot reload API keys; keeping the previous ones", extra={"fields": {"reason": str(error)}})
            return False
        self._metrics.keys_reload_failed.set(0)
        self._keys = keys
        self._requests = {key.name: self._metrics.key_requests.labels(key.name) for key in keys}
        self._metrics.set_key_expiry({key.name: key.expires.timestamp() for key in keys if key.expires is not None})
        _log.info("API keys loaded", extra={"fields": {"names": [key.name for key in keys]}})
        return True

    def serve(self, fields: "Fields") -> None:
        """Accept a release that is about to be served, whose documents have these metadata fields."""
        _check_filters(self._keys, fields)
        self._fields = fields

    async def watch_file(self) -> None:
        """Reload the keys whenever their file changes, until cancelled."""
        while self._settings.access.keys_file is not None:
            await asyncio.sleep(_POLL_SECONDS)
            if await asyncio.to_thread(self._stamp_file) != self._file_stamp:
                self.reload()

    def authorize(
        self, path: str, headers: Mapping[bytes, bytes], scope: KeyScope | None, *, filtered: bool
    ) -> ApiKey | None:
        """Return the key of a request that is authorized, None if no keys are configured; see also `count`."""
        if not self._required:
            if scope == "admin":  # a web page open in a browser on this machine can post here, too
                raise Forbidden(f"{path} {_NO_ADMIN_KEY}")
            return None
        key = self._authenticate(headers)
        if scope is not None and scope not in key.scopes:
            raise Forbidden(f"this API key lacks the scope {scope}")
        if key.filter and not filtered:
            raise Forbidden("this API key has a filter, and this path is about all documents")
        return key

    def secrets(self, permitted: Filter) -> Iterator[str]:
        """Yield the secrets of the keys that have a filter, for `ids.may_judge`: the SHA-256 of each."""
        return (key.sha256 for key in self._keys if key.filter == permitted)

    def count(self, key: ApiKey | None) -> None:
        """Count a request that was authorized with a key just now."""
        if key is not None:
            self._requests[key.name].inc()

    def _authenticate(self, headers: Mapping[bytes, bytes]) -> ApiKey:
        sent = _sent_key(headers)
        if not sent:
            raise Unauthorized(_NO_KEY)
        key = find_key(self._keys, sent)
        if key is None:
            raise Unauthorized("this API key is unknown")
        if key.expires is not None and key.expires.timestamp() <= time.time():
            raise Unauthorized("this API key has expired")
        return key

    def _stamp_file(self) -> _FileStamp | None:
        return None if self._settings.access.keys_file is None else _stamp(self._settings.access.keys_file)


def find_key(keys: Sequence[ApiKey], sent: bytes) -> ApiKey | None:
    """Return the entry of a key in plain text, None if the key is unknown."""
    # Every entry is compared in full, so that the response time does not reveal which of them matched, if any.
    hashed, matched = digest(sent).hex(), None
    for key in keys:
        if hmac.compare_digest(hashed, key.sha256):
            matched = key
    return matched


def _sent_key(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")


def _check_filters(keys: Sequence[ApiKey], fields: "Fields") -> None:
    """Raise InputError for the first key whose filter names a field, or a type of value, that no document has."""
    for key in keys:
        try:
            fields.check_kinds(key.filter)
        except InputError as error:
            raise InputError(
                f"the filter of the key {key.name} does not fit the release: {error}; change the filter, or serve a "
                "release that it fits"
            ) from error


def _stamp(path: Path) -> _FileStamp | None:
    """Return a stamp that changes whenever the file does, None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


class AllowedHosts:
    """The host names that a request's Host header may have (TAUGATE_ALLOWED_HOSTS), against DNS rebinding.

    evil.example can make its own name resolve to 127.0.0.1. The browser then takes this service for the server of
    the evil page, and lets the page read replies; but the Host header of its requests still says evil.example. IP
    addresses are always allowed, because DNS cannot redirect them.
    """

    def __init__(self, settings: Settings) -> None:
        """Allow `host` and the names in `allowed_hosts`: "*.example.org" for all subdomains, "*" for any name."""
        listed = (name.strip().lower() for name in settings.access.allowed_hosts.split(","))
        names = {settings.listen.host.lower(), *listed} - {""}  # "a,,b" does not allow an empty name
        self._allow_any = "*" in names
        self._names = names
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._cached_is_allowed = lru_cache(_CACHED_HOSTS)(self._is_allowed)

    def check(self, host: bytes) -> None:
        """Check a Host header, empty if the request has none: HTTP/1.0 allows that, and no browser sends it."""
        if not self._allow_any and host and not self._cached_is_allowed(host):
            name = _without_port(host)[:_MAX_SHOWN_CHARS]
            raise Forbidden(f"{name} is not a name of this service: add it to TAUGATE_ALLOWED_HOSTS")

    def _is_allowed(self, host: bytes) -> bool:
        name = _without_port(host)
        return name in self._names or name.endswith(self._suffixes) or _is_address(name)


def _without_port(host: bytes) -> str:
    """Return the name alone: ::1 for `[::1]:8000`, localhost for `LOCALHOST:8000`."""
    name = host.decode("latin-1").lower()
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
