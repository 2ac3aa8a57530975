"""Access of one process: keys as they are now, and whether a request may pass."""

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import Counter
from starlette import types as asgi

from taugate.errors import InputError
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.metadata import Metadata
from taugate.service.access.keys import Key, Mark, Scope, configured, digest, mark, read_keys
from taugate.service.errors import Forbidden, Unauthorized
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings

ADMIN, BATCH = "/admin/", "/search/batch"


@dataclass(frozen=True, slots=True)
class Rule:
    """open: needs no key; scope: what a key has to have, None where any will do.

    within: whether what is answered is within the filter of the key. A key with a filter has no other path.
    """

    path: str
    scope: Scope | None = None
    open: bool = False
    within: bool = False


RULES = {
    rule.path: rule
    for rule in (
        Rule("/search", "search", within=True),
        Rule("/search/batch", "search", within=True),
        Rule("/feedback", "feedback", within=True),
        Rule("/metrics", "metrics"),
        Rule("/admin/reload", "admin"),
        Rule("/release"),
        Rule("/livez", open=True),
        Rule("/readyz", open=True),
        Rule("/openapi.json", open=True),
    )
}
_ADMINISTRATION = Rule(ADMIN, "admin")


def rule_of(path: str) -> Rule | None:
    """The rule of a path, None where there is no such path.

    It is the path as it came, not the route it leads to: a route's pattern also takes a path with a line feed behind.
    """
    return RULES.get(path) or (_ADMINISTRATION if path.startswith(ADMIN) else None)


_log = logging.getLogger("taugate.access")
_SECONDS = 2.0  # between two looks at the file: a key that is taken away is refused soon, for two stats a second
_NO_KEY = "no API key: send the header Authorization: Bearer KEY, or X-API-Key: KEY"
_NO_KEYS_HERE = (
    "needs a key with the scope admin, and there are no keys here: name a file of them with TAUGATE_KEYS_FILE "
    "(`taugate key new` makes one); SIGHUP reloads without one"
)


class Access:
    """Keys that can be read again at any time; those before stay where the new ones cannot be read.

    Where a key's filter is on a field that the release lacks, nobody can say what the key may see: such a release is
    not served, and such keys are not taken while it is.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._required = configured(settings)
        self._keys: Sequence[Key] = ()
        self._metadata: Metadata | None = None  # of the release in service
        self._mark: Mark | None = None
        self._passed: dict[str, Counter] = {}  # looking a series up takes longer
        if self._required:
            self.reload()

    def reload(self) -> bool:
        """Read the keys again; False where they could not be read. Nobody is let in while there never were any."""
        if not self._required:
            return True
        self._mark = self._look()
        try:
            keys = read_keys(self._settings)
            if self._metadata is not None:
                _check(keys, self._metadata)
        except InputError as error:
            self._metrics.keys_reload_failed.set(1)
            _log.error("keys could not be read; those before stay", extra={"fields": {"reason": str(error)}})
            return False
        self._metrics.keys_reload_failed.set(0)
        self._keys = keys
        self._passed = {key.name: self._metrics.key_requests.labels(key.name) for key in keys}
        _log.info("keys", extra={"fields": {"names": [key.name for key in keys]}})
        return True

    def serve(self, metadata: Metadata) -> None:
        """A release with this metadata goes into service. Raises InputError where a key's filter does not fit it."""
        _check(self._keys, metadata)
        self._metadata = metadata

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Reads the keys again whenever their file changes."""
        task = asyncio.ensure_future(self._watch())
        try:
            yield
        finally:
            task.cancel()

    def admit(self, rule: Rule, scope: asgi.Scope) -> None:
        """Leave the key of a request in its state. Raises Unauthorized or Forbidden."""
        if rule.open:
            return
        if not self._required:
            if rule.scope == "admin":  # a page in a browser on this machine can post here, too
                raise Forbidden(f"{scope['path'][:100]} {_NO_KEYS_HERE}")
            return
        key = self._key(scope)
        if rule.scope is not None and rule.scope not in key.scopes:
            raise Forbidden(f"this API key has not the scope {rule.scope}")
        if key.filter and not rule.within:
            raise Forbidden("this API key has a filter, and this path is about all documents")
        scope["state"]["key"] = key
        self._passed[key.name].inc()

    def _key(self, scope: asgi.Scope) -> Key:
        sent = _sent(dict(scope["headers"]))
        if not sent:
            raise Unauthorized(_NO_KEY)
        key = find(self._keys, sent)
        if key is None:
            raise Unauthorized("this API key is not known here")
        if key.expires is not None and key.expires <= time.time():
            raise Unauthorized("this API key has expired")
        return key

    async def _watch(self) -> None:
        while self._settings.access.keys_file is not None:
            await asyncio.sleep(_SECONDS)
            if await asyncio.to_thread(self._look) != self._mark:
                self.reload()

    def _look(self) -> Mark | None:
        return None if self._settings.access.keys_file is None else mark(self._settings.access.keys_file)


def permitted(scope: asgi.Scope) -> Filter:
    """The filter of the key that a request was admitted with; () is all documents."""
    key: Key | None = scope["state"].get("key")
    return () if key is None else key.filter


def _check(keys: Sequence[Key], metadata: Metadata) -> None:
    """Raises InputError for the first key whose filter asks for what no document has: a field, or a kind of value."""
    for key in keys:
        try:
            metadata.check_kinds(key.filter)
        except InputError as error:
            raise InputError(
                f"the filter of the key {key.name} does not fit the release: {error}; change the filter, or serve a "
                "release that it fits"
            ) from error


def find(keys: Sequence[Key], sent: bytes) -> Key | None:
    """The key that was sent. Every one is compared in full, so that the time tells nothing of which it is, if any."""
    hashed, found = digest(sent), None
    for key in keys:
        if hmac.compare_digest(hashed, key.digest):
            found = key
    return found


def _sent(headers: dict[bytes, bytes]) -> bytes:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
