"""Kinds of stores: how each is opened, and its request by the names of its collection and fields."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from taugate.data.runs.http_store import HttpStore
from taugate.data.runs.search_request import ExternalStore
from taugate.errors import InputError
from taugate.plugins import load_one
from taugate.storage.files import Json

# Names become a part of SQL, GraphQL and paths: letters, digits, and dots between schema and table.
_NAME = re.compile(r"[\w][\w.-]*")


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
