"""Milvus, through `pymilvus`: a server, a cluster behind a proxy, or milvus-lite in a file.

A row holds a position, a vector, the document's JSON, and a JSON field of tokens and numbers for filters. Searches use
the consistency level "Eventually": a finished collection never changes, and "Strong" waits for a time tick of the
server, about a hundred times as long as the search. Counts use "Strong" because they must see every write.

Nearly all the extra memory of a service over Milvus is taken by importing `pymilvus`: by its modules, by grpc, and by
pandas, which it requires. If pyarrow is installed, pandas imports it, and no setting prevents that. A service needs no
pyarrow, and the extra `milvus` does not install it (benchmarks/decisions.md).
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypedDict, TypeVar
from urllib.parse import urlsplit

import grpc
import numpy as np
import orjson
from pymilvus import DataType, MilvusClient, MilvusException
from pymilvus.client.types import LoadState

from taugate.errors import InputError, ReleaseError
from taugate.policy.arrays import Float32
from taugate.release.engine import PREFIX, EngineKind, GraphParameters
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import Document, write_document
from taugate.retrieval.engines.engine import (
    Candidates,
    CollectionState,
    Positions,
    Rows,
    check_dimension,
    check_name,
    missing_rows,
    no_such_collection,
    not_a_url,
    stored_document,
    time_read,
    time_written,
)
from taugate.retrieval.engines.filters import FilterDialect, condition, filterable, id_condition
from taugate_engines.replicas import Replicas

_SCHEMES = ("http", "https", "tcp", "unix")
# Error codes that count as replies of the server (milvus-io/milvus, pkg/util/merr/errors.go).
_REFUSALS = {100: "does not exist", 101: "is not loaded", 700: "has no index"}

_Result = TypeVar("_Result")

logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it logs every error that it raises, with a traceback


class MilvusServers:
    """Servers with one MilvusClient each; safe to use from several threads.

    Args:
        urls: One or more URLs such as http://127.0.0.1:19530, or a path ending in .db for milvus-lite.
        token: "user:password" or an API key; empty if there is none.
    """

    def __init__(
        self, urls: Sequence[str], token: str, *, remedy: str = "upload the collection again, or load it"
    ) -> None:
        for url in urls:
            _check_url(url)
        self._remedy = remedy
        self._replicas = Replicas("milvus", urls, partial(_connect, token), _is_unavailable)

    def run(
        self, name: str, request: Callable[[Any, float], _Result], deadline: float, *, retry: bool = True
    ) -> _Result:
        """Run a request on the server that replied last or, if it fails, on the next one.

        Args:
            request: Called with a client and a deadline.
        """
        with _refusals(name, self._remedy):
            return self._replicas.run(request, deadline, retry=retry)

    def run_on_each(self, name: str, request: Callable[[Any, float], _Result], deadline: float) -> list[_Result]:
        """Run a request on every server; see Replicas.run_on_each, and `run` for parameters and errors."""
        with _refusals(name, self._remedy):
            return self._replicas.run_on_each(request, deadline)


def remaining(deadline: float) -> float:
    """Return the seconds until a deadline."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("no time is left")
    return seconds


@contextmanager
def _refusals(name: str, remedy: str) -> Iterator[None]:
    """Raise a refusal of Milvus as ReleaseError."""
    try:
        yield
    except MilvusException as error:
        reason = _REFUSALS.get(error.code, f"cannot be used: {error.message}")
        raise ReleaseError(f"{name}: {reason}; {remedy}") from error


def _connect(token: str, url: str, deadline: float) -> Any:  # noqa: ANN401 (pymilvus has no types)
    return MilvusClient(url, token=token, timeout=remaining(deadline))


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in _SCHEMES and parts.port != 0  # `port` raises ValueError if it is not a number
    except ValueError:
        valid = False
    if not valid and not url.endswith(".db"):
        raise not_a_url("milvus", "http://HOST:19530")


def _is_unavailable(error: Exception) -> bool:
    if isinstance(error, MilvusException):
        refusal: Any = error
        return refusal.code not in _REFUSALS
    return isinstance(error, grpc.RpcError | OSError)


MAX_BYTES = 65_535  # limit of a VARCHAR and of a JSON field
ROWS_A_REQUEST = 4096  # 4096 × (1.5 KB + 1 KB) is well below the 64 MB that a server accepts by default
_BYTES_A_REQUEST = 32 << 20  # fewer long documents are sent together

_FIELDS = ["position", "vector", "document"]
_POLL = 0.1  # seconds between checks of an index that is being built

DIALECT = FilterDialect(
    has_any=lambda tokens: f'json_contains_any(filters["tokens"], {orjson.dumps([*tokens]).decode()})',
    compares=lambda key, sign, number: f'filters["numbers"]["{key}"] {sign} {number!r}',
)


class MilvusRow(TypedDict):
    """A row of a collection."""

    position: int
    vector: Float32
    document: str
    filters: dict[str, list[str] | dict[str, float]]


def requests(first: int, shard: Rows) -> Iterator[list[MilvusRow]]:
    """Yield the rows of a shard in parts that fit into one request."""
    part: list[MilvusRow] = []
    size_of_part = 0
    for position, (vector, document) in enumerate(zip(shard.vectors, shard.documents, strict=True), first):
        row, size = _row(position, vector, document)
        if len(part) == ROWS_A_REQUEST or (part and size_of_part + size > _BYTES_A_REQUEST):
            yield part
            part, size_of_part = [], 0
        part.append(row)
        size_of_part += size
    if part:
        yield part


def _row(position: int, vector: Float32, document: Document) -> tuple[MilvusRow, int]:
    """Return a row and its size in bytes."""
    fields = filterable(document)
    filters: dict[str, list[str] | dict[str, float]] = {"tokens": fields.tokens, "numbers": fields.numbers}
    written = write_document(document)
    sizes = {"text": len(written), "metadata": len(orjson.dumps(filters))}
    for part, size in sizes.items():
        if size > MAX_BYTES:
            raise InputError(
                f"document {document.id!r}: {part} of {size:,} bytes, but Milvus accepts {MAX_BYTES:,}; "
                "split it into chunks"
            )
    row: MilvusRow = {"position": position, "vector": vector, "document": written.decode(), "filters": filters}
    return row, vector.nbytes + sum(sizes.values())


class MilvusEngine:
    """One or more Milvus servers that hold the same collections.

    Args:
        token: "user:password" or an API key; empty if there is none.
    """

    kind: EngineKind = "milvus"
    exact = False

    def __init__(self, urls: Sequence[str], token: str = "") -> None:
        self._servers = MilvusServers(urls, token)

    def create(self, name: str, dimension: int, deadline: float) -> None:
        """See Engine.create."""
        created_at = time_written(time.time())
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=created_at)
        schema.add_field("position", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
        schema.add_field("document", DataType.VARCHAR, max_length=MAX_BYTES)
        schema.add_field("filters", DataType.JSON)

        def request(client: Any, limit: float) -> None:  # noqa: ANN401
            if client.has_collection(check_name(name), timeout=remaining(limit)):
                raise ReleaseError(f"the engine already has a collection {name}; drop it to upload it again")
            client.create_collection(name, schema=schema, timeout=remaining(limit))

        self._servers.run(name, request, deadline, retry=False)

    def upload(self, name: str, first: int, shard: Rows, deadline: float) -> None:
        """See Engine.upload."""
        for part in requests(first, shard):
            insert = lambda client, limit, part=part: client.insert(check_name(name), part, timeout=remaining(limit))  # noqa: E731
            self._servers.run(name, insert, deadline, retry=False)

    def finish(self, name: str, graph: GraphParameters, deadline: float) -> None:
        """See Engine.finish."""
        parameters = {"M": graph.edges, "efConstruction": graph.edge_candidates}
        index = MilvusClient.prepare_index_params()
        index.add_index("vector", index_type="HNSW", metric_type="IP", params=parameters)

        def build(client: Any, limit: float) -> None:  # noqa: ANN401
            client.flush(check_name(name), timeout=remaining(limit))
            client.create_index(name, index, timeout=remaining(limit))
            while (pending := _pending_rows(client, name, limit)) != 0:
                if pending is None:
                    raise ReleaseError(f"{name}: Milvus could not build its index; read its log, then try again")
                time.sleep(min(_POLL, remaining(limit)))
            client.load_collection(name, timeout=remaining(limit))

        self._servers.run(name, build, deadline, retry=False)

    def drop(self, name: str, deadline: float) -> None:
        """See Engine.drop."""
        self._servers.run(
            name, lambda client, limit: client.drop_collection(check_name(name), timeout=remaining(limit)), deadline
        )

    def names(self, deadline: float) -> list[str]:
        """See Engine.names."""
        list_names = lambda client, limit: client.list_collections(timeout=remaining(limit))  # noqa: E731
        return sorted(name for name in self._servers.run("", list_names, deadline) if name.startswith(PREFIX))

    def created(self, name: str, deadline: float) -> float | None:
        """See Engine.created."""

        def request(client: Any, limit: float) -> float | None:  # noqa: ANN401
            return time_read(client.describe_collection(check_name(name), timeout=remaining(limit)).get("description"))

        return self._servers.run(name, request, deadline)

    def collection(self, name: str, breadth: int, deadline: float) -> "MilvusCollection":
        """See Engine.collection."""

        def dimension(client: Any, limit: float) -> int:  # noqa: ANN401
            if not client.has_collection(check_name(name), timeout=remaining(limit)):
                raise no_such_collection(name)
            fields = client.describe_collection(name, timeout=remaining(limit))["fields"]
            return next((int(field["params"]["dim"]) for field in fields if field["name"] == "vector"), 0)

        return MilvusCollection(name, self._servers.run(name, dimension, deadline), breadth, self._servers)


class MilvusCollection:
    """A collection in Milvus; see Collection."""

    def __init__(self, name: str, dimension: int, breadth: int, servers: MilvusServers) -> None:
        self.name, self.dimension = name, dimension
        self._breadth, self._servers = breadth, servers

    def propose(self, queries: Float32, count: int, query_filter: Filter, deadline: float) -> Candidates:
        """See Collection.propose."""
        check_dimension(self.name, queries, self.dimension)
        positions = np.full((len(queries), count), -1, dtype=np.int64)
        vectors = np.zeros((len(queries), count, self.dimension), dtype=np.float32)
        documents: dict[int, Document] = {}
        meets = condition(query_filter, DIALECT) if query_filter else ""
        step = max(1, ROWS_A_REQUEST // count)
        for start in range(0, len(queries), step):
            for row, hits in enumerate(self._search(queries[start : start + step], count, meets, deadline), start):
                for place, hit in enumerate(hits):
                    entity = hit["entity"]
                    positions[row, place] = position = int(entity["position"])
                    vectors[row, place] = entity["vector"]
                    if position not in documents:
                        documents[position] = stored_document(self.name, position, entity["document"])
        return Candidates(positions, vectors, documents)

    def _search(self, queries: Float32, count: int, meets: str, deadline: float) -> Any:  # noqa: ANN401
        def request(client: Any, limit: float) -> Any:  # noqa: ANN401
            return client.search(
                self.name,
                [*queries],
                filter=meets,
                anns_field="vector",
                limit=count,
                search_params={"metric_type": "IP", "params": {"ef": max(self._breadth, count)}},
                output_fields=_FIELDS,
                consistency_level="Eventually",
                timeout=remaining(limit),
            )

        return self._servers.run(self.name, request, deadline)

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """See Collection.fetch."""
        rows: dict[int, Any] = {}
        for start in range(0, len(positions), ROWS_A_REQUEST):
            part = positions[start : start + ROWS_A_REQUEST].tolist()
            for row in self._query(f"position in {part}", _FIELDS, deadline):
                rows[int(row["position"])] = row
        requested = positions.tolist()
        if missing := [position for position in requested if position not in rows]:
            raise missing_rows(self.name, missing)
        vectors = np.array([rows[position]["vector"] for position in requested], dtype=np.float32)
        documents = [stored_document(self.name, position, rows[position]["document"]) for position in requested]
        return Rows(vectors.reshape(len(requested), self.dimension), documents)

    def where(self, query_filter: Filter, limit: int, deadline: float, among: Positions | None = None) -> Positions:
        """See Collection.where."""
        meets = condition(query_filter, DIALECT)
        if among is not None:
            meets = f"position in {among.tolist()} and ({meets})"
        return self._positions(meets, limit, deadline)

    def find(self, document_id: str, deadline: float) -> Positions:
        """See Collection.find; Milvus reads the tokens of all rows for it."""
        passage = self._positions(id_condition(document_id, DIALECT, chunks=False), 1, deadline)
        if len(passage):
            return passage
        return self._positions(id_condition(document_id, DIALECT, chunks=True), None, deadline)

    def state(self, deadline: float) -> CollectionState:
        """See Collection.state."""

        def request(client: Any, limit: float) -> CollectionState:  # noqa: ANN401
            pending = _pending_rows(client, self.name, limit)
            loaded = client.get_load_state(self.name, timeout=remaining(limit))["state"] == LoadState.Loaded
            if loaded and pending is not None:
                counted = client.query(
                    self.name, output_fields=["count(*)"], consistency_level="Strong", timeout=remaining(limit)
                )
                rows = int(counted[0]["count(*)"])
            else:
                rows = int(client.get_collection_stats(self.name, timeout=remaining(limit))["row_count"])
            return CollectionState(self.dimension, rows, pending is not None, pending or 0, loaded)

        return CollectionState.of_all(self._servers.run_on_each(self.name, request, deadline))

    def _positions(self, meets: str, max_rows: int | None, deadline: float) -> Positions:
        rows = self._query(meets, ["position"], deadline, max_rows)
        return np.array(sorted(int(row["position"]) for row in rows), dtype=np.int64)

    def _query(self, meets: str, fields: list[str], deadline: float, max_rows: int | None = None) -> Any:  # noqa: ANN401
        def request(client: Any, limit: float) -> Any:  # noqa: ANN401
            options = {} if max_rows is None else {"limit": max_rows}
            return client.query(
                self.name,
                filter=meets,
                output_fields=fields,
                consistency_level="Eventually",
                timeout=remaining(limit),
                **options,
            )

        return self._servers.run(self.name, request, deadline)


def _pending_rows(client: Any, name: str, limit: float) -> int | None:  # noqa: ANN401
    """Return the number of rows not yet in the index; None if there is no index or its build failed."""
    if not client.list_indexes(name, field_name="vector", timeout=remaining(limit)):
        return None
    index = client.describe_index(name, "vector", timeout=remaining(limit))
    if index is None or index.get("state") == "Failed":
        return None
    unfinished = 0 if index.get("state") == "Finished" else 1
    return max(
        int(index.get("pending_index_rows", 0)), int(index["total_rows"]) - int(index["indexed_rows"]), unfinished
    )
