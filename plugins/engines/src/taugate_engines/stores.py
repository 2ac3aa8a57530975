"""Stores that are searched through their own clients: PostgreSQL in read-only transactions, and Milvus."""

import re
import time
from collections.abc import Mapping
from typing import Any

import orjson

from taugate.data.runs.presets import Names
from taugate.data.runs.search_request import PLACEHOLDER, Fields, at, fill, value_of
from taugate.errors import InputError, ReleaseError
from taugate.storage.files import Json

_TIMEOUT = 60.0  # seconds of one search
_SELECTS = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_RESULT = {"id", "score", "text"}
_REMEDY = "correct the request, or the name of the collection"


class PostgresStore:
    """Tables of PostgreSQL; see ExternalStore. PostgreSQL itself refuses to write, whatever the statement is.

    The body of a request is a SELECT with placeholders. Its columns are `id`, `score`, perhaps `text`, and further
    scores.

    Args:
        password: Password of that user; empty if there is none.
    """

    def __init__(self, url: str, password: str = "") -> None:
        from taugate_engines.postgres import PostgresServers

        self._servers = PostgresServers([url], password, read_only=True, remedy=_REMEDY)

    @staticmethod
    def preset(names: Names) -> dict[str, Json]:
        """See Database.preset."""
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

    def send(self, path: str, body: Any, fields: Fields) -> Any:  # noqa: ANN401 (JSON)
        """See ExternalStore.send; the path is not used."""
        if not isinstance(body, str) or not _SELECTS.match(body):
            raise InputError("the request is not a SELECT, and nothing else is sent; correct it")
        statement = PLACEHOLDER.sub(
            lambda match: "$" if match[1] == "$" else f"%({match[1]})s", body.replace("%", "%%")
        )
        values = {match[1]: _parameter(value_of(match[1], fields)) for match in PLACEHOLDER.finditer(body)}

        def request(connection: Any) -> list[dict[str, Json]]:  # noqa: ANN401 (psycopg is an extra)
            cursor = connection.execute(statement.encode(), values)
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        return {"rows": [_row(row) for row in _run(self._servers.run, "", request)]}


class MilvusStore:
    """Collections of Milvus; see ExternalStore. Only `MilvusClient.search` and `query` are called.

    The path of a request is the collection, and its body has the arguments of `search`, or of `query` if it has no
    `data`.

    Args:
        token: "user:password" or an API key; empty if there is none.
    """

    def __init__(self, url: str, token: str = "") -> None:
        from taugate_engines.milvus import MilvusServers

        self._servers = MilvusServers([url], token, remedy=_REMEDY)

    @staticmethod
    def preset(names: Names) -> dict[str, Json]:
        """See Database.preset."""
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

    def send(self, path: str, body: Any, fields: Fields) -> Any:  # noqa: ANN401 (JSON)
        """See ExternalStore.send."""
        arguments = fill(body, fields)
        if not isinstance(arguments, dict):
            raise InputError("the body is no object of arguments of MilvusClient.search; correct the request")

        def request(client: Any, deadline: float) -> Any:  # noqa: ANN401 (pymilvus has no types)
            return (client.search if "data" in arguments else client.query)(path, **arguments)

        reply = _run(self._servers.run, path, request)
        return {"results": _objects(at(reply, "0") if "data" in arguments else reply)}


def _run(run: Any, name: str, request: Any) -> Any:  # noqa: ANN401 (of two clients)
    """Run a request; what a server refuses is a fault of the request here."""
    try:
        return run(name, request, time.monotonic() + _TIMEOUT)
    except ReleaseError as error:
        raise InputError(str(error)) from error


def _objects(rows: Any) -> Any:  # noqa: ANN401 (pymilvus has no types)
    """Return hits, or rows as hits, as plain objects; whatever is neither is left as it is."""
    if not isinstance(rows, list):
        return rows
    return [{"entity": row, **row} if isinstance(row, Mapping) else row for row in rows]


def _parameter(value: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return a parameter of a statement: vectors and other lists as text, which PostgreSQL casts."""
    return orjson.dumps(value).decode() if isinstance(value, list | dict) else value


def _row(row: dict[str, Json]) -> dict[str, Json]:
    return {name: row[name] for name in row if name in _RESULT} | {
        "scores": {name: value for name, value in row.items() if name not in _RESULT}
    }
