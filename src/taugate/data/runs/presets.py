"""Kinds of stores that a run is recorded from: how each is opened, and its request by the names of its fields.

Only requests to paths that search are sent over HTTP, nothing is redirected, and a body is only sent with POST.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import orjson
from pydantic import BaseModel, Field, ValidationError

from taugate.data.runs.search_request import PLACEHOLDER, ExternalStore, Fields, beginning_of, fill, value_of
from taugate.errors import InputError
from taugate.plugins import load_one
from taugate.storage.files import Json
from taugate.storage.http_client import AttemptFailed, HttpClient
from taugate.storage.json_endpoint import TRANSIENT, check_key, retry_after

# Names become a part of SQL, GraphQL and paths: letters, digits, and dots between schema and table.
_NAME = re.compile(r"[\w][\w.-]*")

TRIES = 5  # of one request
_FIRST_WAIT, _MAX_WAIT = 1.0, 60.0  # seconds between two tries; they double
_TIMEOUT = 60.0  # seconds that the tries of one request take: the first search after a start loads indexes
_QUOTED = 200  # bytes of a reply that an error repeats
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


@dataclass(frozen=True)
class Names:
    """Names in a store."""

    collection: str | None  # collection, index, class or table
    id: str | None  # field with the document's id; None for the id that the store gives to an entry
    vector: str | None  # field with the vector; None for the one that needs no name
    words: str
    reads_texts: bool  # whether results have texts

    @property
    def text(self) -> str | None:
        """The field with the text if it is read."""
        return self.words if self.reads_texts else None

    def check(self, kind: str) -> None:
        """Raise InputError if a name is missing or is not one."""
        if self.collection is None:
            raise InputError(f"--collection: --as {kind} needs the name of the collection, or --request")
        for name in (self.collection, self.id, self.vector, self.words):
            if name is not None and not _NAME.fullmatch(name):
                raise InputError(f"{name!r}: a name has letters, digits, dots, hyphens and underscores; use --request")


class Database(Protocol):
    """An entry point of the group `taugate.stores`: a kind of database that `taugate run --as NAME` searches."""

    def __call__(self, url: str, secret: str) -> ExternalStore:
        """Return the database at a URL; parameters and errors as of `open_store`."""
        ...

    def preset(self, names: Names) -> dict[str, Json]:
        """Return a request by the names of a store, as `preset` does."""
        ...


def preset(kind: str, names: Names, *, has_vectors: bool) -> dict[str, Json]:
    """Return a request by the names of a store, with one list of results; a request of the user replaces its parts.

    Args:
        has_vectors: Whether queries have vectors; without, a store that can searches for words.

    Raises:
        InputError: If no plug-in has this kind, or a name that it needs is missing.
    """
    if (request := _OVER_HTTP.get(kind)) is not None:
        return request(names, has_vectors)
    database: Database = load_one("stores", kind)
    return database.preset(names)


def open_store(kind: str, url: str, secret: str) -> ExternalStore:
    """Return the store of a kind at a URL; the secret is its key or password, empty for none.

    Raises:
        InputError: If no plug-in has this kind, or the URL is not one of it.
        ModuleNotFoundError: If the client of a database is not installed.
    """
    if kind in _OVER_HTTP:
        return HttpStore(kind, url, secret)
    database: Database = load_one("stores", kind)
    return database(url, secret)


def _none(names: Names, has_vectors: bool) -> dict[str, Json]:
    raise InputError("--as http: needs --request, a file with the request and the places of its results")


def _qdrant(names: Names, has_vectors: bool) -> dict[str, Json]:
    fields = [name for name in (names.id, names.text) if name]
    using = {"using": names.vector} if names.vector else {}
    return {
        "path": f"/collections/{names.collection}/points/query",
        "body": {"query": "$vector", "limit": "$depth", "with_payload": fields or False, **using},
        "sample": {"query": {"sample": "random"}, "limit": "$count", "with_payload": fields},
        "results": "result.points",
        "id": f"payload.{names.id}" if names.id else "id",
        "score": "score",
        "text": names.text and f"payload.{names.text}",
    }


def _elasticsearch(names: Names, has_vectors: bool) -> dict[str, Json]:
    fields = [name for name in (names.id, names.text) if name]
    # Ten candidates per requested result, at most as many as Elasticsearch allows.
    knn: Json = {"field": names.vector or "vector", "query_vector": "$vector", "k": "$depth", "num_candidates": 1000}
    query: dict[str, Json] = {"knn": knn} if has_vectors else {"query": {"match": {names.words: "$query"}}}
    return {
        "path": f"/{names.collection}/_search",
        "body": {**query, "size": "$depth", "_source": fields or False},
        "sample": {
            "query": {"function_score": {"query": {"match_all": {}}, "random_score": {}}},
            "size": "$count",
            "_source": fields,
        },
        "results": "hits.hits",
        "id": f"_source.{names.id}" if names.id else "_id",
        "score": "_score",
        "text": names.text and f"_source.{names.text}",
    }


def _weaviate(names: Names, has_vectors: bool) -> dict[str, Json]:
    fields = " ".join([*(name for name in (names.id, names.text) if name), "_additional{id score}"])
    vector = ",vector:$vector" if has_vectors else ""
    target = f',targetVectors:["{names.vector}"]' if names.vector else ""
    search = f"hybrid:{{query:$query{vector}{target}}},limit:$depth"
    return {
        "path": "/v1/graphql",
        "body": {"query": f"{{Get{{{names.collection}({search}){{{fields}}}}}}}"},
        "sample": {"query": f"{{Get{{{names.collection}(limit:$count){{{fields}}}}}}}"},
        "results": f"data.Get.{names.collection}",
        "id": names.id or "_additional.id",
        "score": "_additional.score",
        "text": names.text,
    }


_OVER_HTTP: Mapping[str, Callable[[Names, bool], dict[str, Json]]] = {
    "qdrant": _qdrant,
    "elasticsearch": _elasticsearch,
    "weaviate": _weaviate,
    "http": _none,
}


class _Shards(BaseModel):
    failures: Any = None


class _Envelope(BaseModel):
    """What a reply says of its own success: the errors of the whole, of shards, and of searches that it joins."""

    errors: Any = None
    error: Any = None
    timed_out: Any = None
    shards: _Shards | None = Field(default=None, alias="_shards")
    responses: "list[_Envelope] | None" = None

    def failure(self) -> Any:  # noqa: ANN401 (JSON)
        """Return what failed; something false if nothing did."""
        own = self.errors or self.error or (self.shards and self.shards.failures) or (self.timed_out and "timed out")
        return own or next(filter(None, (part.failure() for part in self.responses or ())), None)


class HttpStore:
    """A store behind a URL; see Store.

    Args:
        key: Key, sent in the header of this kind; empty for none.
        first_wait: Seconds before the second try of a request.

    Raises:
        InputError: If the URL is not one of HTTP.
    """

    def __init__(self, kind: str, url: str, key: str = "", first_wait: float = _FIRST_WAIT) -> None:
        self._kind, self._url, self._first_wait, self._key = kind, _checked(url), first_wait, key
        name, prefix = _KEYS.get(kind, _BEARER)
        check_key(key, "the key of the store")
        self._http = HttpClient(self._url, {name: prefix + key} if key else {}, "request fewer results")

    def send(self, path: str, body: Any, fields: Fields) -> Any:  # noqa: ANN401 (JSON)
        """See Store.send; a body that is a list is sent as lines of JSON."""
        address = self._url + self._checked_path(_filled_path(path, fields))
        filled = fill(body, fields)
        kind = "application/json"
        content = b"" if body is None else orjson.dumps(filled)
        if isinstance(filled, list):
            kind, content = "application/x-ndjson", b"".join(orjson.dumps(line) + b"\n" for line in filled)
        headers = {"Content-Type": kind} if content else {}
        method, spent, attempt = "GET" if body is None else "POST", 0.0, 0
        while True:
            began = time.monotonic()
            try:
                status, replied, received = self._http.request(
                    method, address, content, headers, _MAX_BYTES, _TIMEOUT - spent
                )
            except AttemptFailed as error:
                failure, waits = str(error), 0.0
            else:
                failure, waits = f"the status was {status}", retry_after(replied)
                if status == 200:
                    reply = self._parsed(address, received)
                    # Of Taugate itself, while the reranker is down; scores of both stages would be one run.
                    if not (isinstance(reply, dict) and reply.get("stage") == "first"):
                        return reply
                    failure = "the second stage did not reply, so that the scores are those of the first one"
                elif status not in TRANSIENT:
                    message = received[:_QUOTED].decode(errors="replace").replace(self._key or "\0", "…")
                    raise InputError(f"{address}: status {status}: {message}; correct the request, or give a key")
            spent, attempt = spent + time.monotonic() - began, attempt + 1
            if attempt == TRIES or spent >= _TIMEOUT:
                failed = f"{attempt} attempts failed, the last one" if attempt > 1 else "the request failed"
                raise ConnectionError(f"{address}: {failed} as {failure}; the same command resumes the run")
            time.sleep(min(max(waits, self._first_wait * 2 ** (attempt - 1)), _MAX_WAIT))

    def _parsed(self, address: str, received: bytes) -> Any:  # noqa: ANN401 (JSON)
        """Return a reply as JSON; raises InputError if it is none, or reports that a part of the search failed."""
        try:
            reply = orjson.loads(received)
        except orjson.JSONDecodeError:
            raise InputError(f"{address}: the reply is not JSON; check --url and the path of the request") from None
        failed = None
        try:
            failed = _Envelope.model_validate(reply).failure() if isinstance(reply, dict) else None
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            if self._kind != "http":  # whose replies may have other fields of these names
                raise InputError(f"{address}: the reply has another {place!r} than {self._kind}; check --url") from None
        if failed:
            reason = beginning_of(failed)
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
