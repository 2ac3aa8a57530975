"""The request of each kind of store that needs no further words than the names of its collection and fields."""

import re
from dataclasses import dataclass
from typing import Literal

from taugate.errors import InputError
from taugate.storage.files import Json

StoreKind = Literal["qdrant", "elasticsearch", "weaviate", "pgvector", "milvus", "http"]
# Names become a part of SQL, GraphQL and paths: letters, digits, and dots between schema and table.
_NAME = re.compile(r"[\w][\w.-]*")


@dataclass(frozen=True)
class Names:
    """Names in a store.

    Attributes:
        collection: Collection, index, class or table.
        id: Field with the document's id; None for the id that the store gives to an entry.
        vector: Field with the vector; None for the one that needs no name.
        words: Field with the text.
        reads_texts: Whether results have texts.
    """

    collection: str | None
    id: str | None
    vector: str | None
    words: str
    reads_texts: bool

    @property
    def text(self) -> str | None:
        """The field with the text if it is read."""
        return self.words if self.reads_texts else None

    def check(self, kind: StoreKind) -> None:
        """Raise InputError if a name is missing or is not one."""
        if self.collection is None:
            raise InputError(f"--collection: --as {kind} needs the name of the collection, or --request")
        for name in (self.collection, self.id, self.vector, self.words):
            if name is not None and not _NAME.fullmatch(name):
                raise InputError(f"{name!r}: a name has letters, digits, dots, hyphens and underscores; use --request")


def preset(kind: StoreKind, names: Names, *, has_vectors: bool) -> dict[str, Json]:
    """Return a request by the names of a store, with one list of results; a request of the user replaces its parts.

    Args:
        kind: Kind of the store.
        names: Names in the store.
        has_vectors: Whether queries have vectors; without, a store that can searches for words.

    Raises:
        InputError: If a name that this kind needs is missing.
    """
    match kind:
        case "qdrant":
            return _qdrant(names)
        case "elasticsearch":
            return _elasticsearch(names, has_vectors=has_vectors)
        case "weaviate":
            return _weaviate(names, has_vectors=has_vectors)
        case "pgvector":
            return _pgvector(names)
        case "milvus":
            return _milvus(names)
        case "http":
            raise InputError("--as http: needs --request, a file with the request and the places of its results")


def _qdrant(names: Names) -> dict[str, Json]:
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


def _elasticsearch(names: Names, *, has_vectors: bool) -> dict[str, Json]:
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


def _weaviate(names: Names, *, has_vectors: bool) -> dict[str, Json]:
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


def _pgvector(names: Names) -> dict[str, Json]:
    vector, columns = names.vector or "embedding", f"{names.id or 'id'} AS id"
    text = f", {names.text} AS text" if names.text else ""
    distance = f"{vector} <=> $vector::vector"
    table = names.collection
    return {
        "body": f"SELECT {columns}, 1 - ({distance}) AS score{text} FROM {table} ORDER BY {distance} LIMIT $depth",  # noqa: S608 (checked names)
        "sample": f"SELECT {columns}{text} FROM {table} ORDER BY random() LIMIT $count",  # noqa: S608
        "results": "rows",
        "id": "id",
        "score": "score",
        "scores": "scores",
        "text": names.text and "text",
    }


def _milvus(names: Names) -> dict[str, Json]:
    output = {"output_fields": [name for name in (names.id, names.text) if name]}
    anns = {"anns_field": names.vector} if names.vector else {}
    return {
        "path": names.collection,
        "body": {"data": ["$vector"], "limit": "$depth", **anns, **output},
        "sample": {"filter": "", "limit": "$count", **output},
        "results": "results",
        "id": f"entity.{names.id}" if names.id else "id",
        "score": "distance",
        "text": names.text and f"entity.{names.text}",
    }
