"""A store that is searched over HTTP: Qdrant, Elasticsearch, OpenSearch, Weaviate, or any other.

Only requests to paths that search are sent, nothing is redirected, and a body is only sent with POST.
"""

import re
import time
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import orjson

from taugate.errors import InputError
from taugate.ingestion.runs.search_request import PLACEHOLDER, Fields, fill, value_of
from taugate.storage.json_endpoint import TRANSIENT, retry_after
from taugate.storage.loopback import is_on_loopback

TRIES = 5  # of one request
_FIRST_WAIT, _MAX_WAIT = 1.0, 60.0  # seconds between two tries; they double
_TIMEOUT = 60.0  # seconds of one request: the first search after a start loads indexes
_MAX_BYTES = 64 << 20  # of a reply: a thousand results of 64 KiB

# Paths that search and nothing else, by kind; None if only the user knows them.
_SEARCHES = {
    "qdrant": re.compile(r"/collections/[^/]+/points/(query|search)(/batch|/groups)?"),
    "elasticsearch": re.compile(r"(/[^/]+)?/_m?search"),
    "weaviate": re.compile(r"/v1/graphql"),
    "http": None,
}
# Header of a key.
_KEYS = {"qdrant": ("api-key", ""), "elasticsearch": ("Authorization", "ApiKey ")}
_BEARER = ("Authorization", "Bearer ")


class HttpStore:
    """A store behind a URL; see Store.

    Args:
        kind: Kind of the store.
        url: Its URL.
        key: Key, sent in the header of this kind; empty for none.
        first_wait: Seconds before the second try of a request.

    Raises:
        InputError: If the URL is not one of HTTP.
    """

    def __init__(self, kind: str, url: str, key: str = "", first_wait: float = _FIRST_WAIT) -> None:
        self._kind, self._url, self._first_wait = kind, _checked(url), first_wait
        name, prefix = _KEYS.get(kind, _BEARER)
        headers = {name: prefix + key} if key else {}
        self._http = httpx2.Client(headers=headers, timeout=_TIMEOUT, trust_env=not is_on_loopback(url))

    def send(self, path: str, body: Any, fields: Fields) -> Any:  # noqa: ANN401 (JSON)
        """See Store.send; a body that is a list is sent as lines of JSON."""
        address = self._url + self._checked_path(_filled_path(path, fields))
        filled = fill(body, fields)
        kind = "application/json"
        content = b"" if body is None else orjson.dumps(filled)
        if isinstance(filled, list):
            kind, content = "application/x-ndjson", b"".join(orjson.dumps(line) + b"\n" for line in filled)
        headers = {"Content-Type": kind} if content else {}
        failure = ""
        for attempt in range(TRIES):
            try:
                status, waits, received = self._request("GET" if body is None else "POST", address, content, headers)
            except httpx2.TransportError as error:
                failure, waits = f"{type(error).__name__}: {error}", 0.0
            else:
                if status == 200:
                    return self._parsed(address, received)
                failure = f"status {status}"
                if status not in TRANSIENT:
                    message = received[:200].decode(errors="replace")
                    raise InputError(f"{address}: status {status}: {message}; correct the request, or give a key")
            if attempt + 1 < TRIES:
                time.sleep(min(max(waits, self._first_wait * 2**attempt), _MAX_WAIT))
        raise ConnectionError(
            f"{address}: {TRIES} attempts failed, the last one with {failure}; the same command resumes the run"
        )

    def _request(self, method: str, address: str, content: bytes, headers: dict[str, str]) -> tuple[int, float, bytes]:
        """Return status, seconds of Retry-After, and content of a reply."""
        with self._http.stream(method, address, content=content, headers=headers) as response:
            received = b""
            for part in response.iter_bytes():
                received += part
                if len(received) > _MAX_BYTES:
                    raise InputError(f"{address}: the reply exceeds {_MAX_BYTES >> 20} MiB; request fewer results")
            return response.status_code, retry_after(response.headers), received

    def _parsed(self, address: str, received: bytes) -> Any:  # noqa: ANN401 (JSON)
        """Return a reply as JSON; raises InputError if it is none, or reports that a part of the search failed."""
        try:
            reply = orjson.loads(received)
        except orjson.JSONDecodeError:
            raise InputError(f"{address}: the reply is not JSON; check --url and the path of the request") from None
        for part in (reply, *(reply.get("responses") or ())) if isinstance(reply, dict) else ():
            failed = part.get("errors") or part.get("error") or (part.get("_shards") or {}).get("failures")
            if failed or part.get("timed_out"):
                reason = orjson.dumps(failed or "timed out").decode()[:200]
                raise InputError(f"{address}: a part of the search failed: {reason}; correct the request, or try again")
        return reply

    def _checked_path(self, path: str) -> str:
        """Return a path that only searches, as far as its kind says; raises InputError for any other."""
        pattern, plain = _SEARCHES[self._kind], path.partition("?")[0]
        if not path.startswith("/") or ".." in plain or (pattern and not pattern.fullmatch(plain)):
            raise InputError(
                f"{path}: is not a search of {self._kind}, and nothing else is sent; correct the path, or use --as http"
            )
        return path


def _filled_path(path: str, fields: Fields) -> str:
    return PLACEHOLDER.sub(
        lambda match: "$" if match[1] == "$" else quote(str(value_of(match[1], fields)), safe=""), path
    )


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or parts.query:
        raise InputError(
            "--url: not an HTTP URL, or one with a password; give one such as http://localhost:6333, and a key with "
            "--key-file"
        )
    return url.rstrip("/")
