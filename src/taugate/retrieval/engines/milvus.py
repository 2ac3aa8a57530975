"""Milvus, through `pymilvus`: a server, a cluster behind a proxy, or milvus-lite in a file.

A row is a position, a vector, the document's JSON, and a JSON field of tokens and numbers for filters. Searches are of
consistency "Eventually": a finished collection never changes, and "Strong" waits for a time tick of the server, about a
hundred times as long as the search. Counts are "Strong", as they must see every write.

Nearly all the memory that a service over Milvus takes more is taken when `pymilvus` is imported: by its modules, by
grpc, and by pandas, which it cannot do without. pandas imports pyarrow wherever that is installed, and no setting keeps
it from that. A service needs no pyarrow, and `taugate[milvus]` brings none (docs/benchmarks/engines.md).
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from pymilvus import DataType, MilvusClient
from pymilvus.client.types import LoadState

from taugate.errors import ReleaseError
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import Document, read_document
from taugate.retrieval.engines.engine import (
    PREFIX,
    Candidates,
    CollectionState,
    EngineKind,
    GraphParameters,
    Positions,
    Rows,
    check_dimension,
    check_name,
    missing_rows,
    no_such_collection,
    time_read,
    time_written,
)
from taugate.retrieval.engines.filters import Dialect, condition, id_condition
from taugate.retrieval.engines.milvus_rows import MAX_BYTES, ROWS_A_REQUEST, requests
from taugate.retrieval.engines.milvus_servers import MilvusServers, left
from taugate.retrieval.vectors.similarity import Float32

_FIELDS = ["position", "vector", "document"]
_POLL = 0.1  # seconds between two looks at an index that is being built

DIALECT = Dialect(
    has_any=lambda tokens: f'json_contains_any(filters["tokens"], {orjson.dumps([*tokens]).decode()})',
    compares=lambda key, sign, number: f'filters["numbers"]["{key}"] {sign} {number!r}',
)


class MilvusEngine:
    """One or more Milvus servers that hold the same collections.

    Attributes:
        urls: Such as http://127.0.0.1:19530; a path ending in .db for milvus-lite.
        token: "user:password" or an API key; empty for none.

    Raises:
        InputError: For a URL of anything else.
    """

    kind: EngineKind = "milvus"

    def __init__(self, urls: Sequence[str], token: str = "") -> None:
        self._servers = MilvusServers(urls, token)

    def create(self, name: str, dimension: int, deadline: float) -> None:
        """See Engine.create."""
        made = time_written(time.time())
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=made)
        schema.add_field("position", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
        schema.add_field("document", DataType.VARCHAR, max_length=MAX_BYTES)
        schema.add_field("filters", DataType.JSON)

        def question(client: Any, limit: float) -> None:  # noqa: ANN401
            if client.has_collection(check_name(name), timeout=left(limit)):
                raise ReleaseError(f"the engine already has a collection {name}; drop it to upload it again")
            client.create_collection(name, schema=schema, timeout=left(limit))

        self._servers.ask(name, question, deadline, again=False)

    def upload(self, name: str, first: int, shard: Rows, deadline: float) -> None:
        """See Engine.upload."""
        for part in requests(first, shard):
            insert = lambda client, limit, part=part: client.insert(check_name(name), part, timeout=left(limit))  # noqa: E731
            self._servers.ask(name, insert, deadline, again=False)

    def finish(self, name: str, graph: GraphParameters, deadline: float) -> None:
        """See Engine.finish."""
        parameters = {"M": graph.edges, "efConstruction": graph.edge_candidates}
        index = MilvusClient.prepare_index_params()
        index.add_index("vector", index_type="HNSW", metric_type="IP", params=parameters)

        def build(client: Any, limit: float) -> None:  # noqa: ANN401
            client.flush(check_name(name), timeout=left(limit))
            client.create_index(name, index, timeout=left(limit))
            while (pending := _pending_rows(client, name, limit)) != 0:
                if pending is None:
                    raise ReleaseError(f"{name}: Milvus could not build its index; read its log, then try again")
                time.sleep(min(_POLL, left(limit)))
            client.load_collection(name, timeout=left(limit))

        self._servers.ask(name, build, deadline, again=False)

    def drop(self, name: str, deadline: float) -> None:
        """See Engine.drop."""
        self._servers.ask(
            name, lambda client, limit: client.drop_collection(check_name(name), timeout=left(limit)), deadline
        )

    def names(self, deadline: float) -> list[str]:
        """See Engine.names."""
        found = self._servers.ask("", lambda client, limit: client.list_collections(timeout=left(limit)), deadline)
        return sorted(name for name in found if name.startswith(PREFIX))

    def created(self, name: str, deadline: float) -> float | None:
        """See Engine.created."""

        def question(client: Any, limit: float) -> float | None:  # noqa: ANN401
            return time_read(client.describe_collection(check_name(name), timeout=left(limit)).get("description"))

        return self._servers.ask(name, question, deadline)

    def collection(self, name: str, breadth: int, deadline: float) -> "MilvusCollection":
        """See Engine.collection."""

        def dimension(client: Any, limit: float) -> int:  # noqa: ANN401
            if not client.has_collection(check_name(name), timeout=left(limit)):
                raise no_such_collection(name)
            fields = client.describe_collection(name, timeout=left(limit))["fields"]
            return next((int(each["params"]["dim"]) for each in fields if each["name"] == "vector"), 0)

        return MilvusCollection(name, self._servers.ask(name, dimension, deadline), breadth, self._servers)


class MilvusCollection:
    """A collection in Milvus; see Collection.

    Attributes:
        dimension: Of its vectors.
        breadth: Ef of a search.
        servers: That hold it.
    """

    def __init__(self, name: str, dimension: int, breadth: int, servers: MilvusServers) -> None:
        self.name, self.dimension = name, dimension
        self._breadth, self._servers = breadth, servers

    def propose(self, queries: Float32, count: int, wanted: Filter, deadline: float) -> Candidates:
        """See Collection.propose."""
        check_dimension(self.name, queries, self.dimension)
        positions = np.full((len(queries), count), -1, dtype=np.int64)
        vectors = np.zeros((len(queries), count, self.dimension), dtype=np.float32)
        documents: dict[int, Document] = {}
        meets = condition(wanted, DIALECT) if wanted else ""
        step = max(1, ROWS_A_REQUEST // count)
        for start in range(0, len(queries), step):
            for row, hits in enumerate(self._search(queries[start : start + step], count, meets, deadline), start):
                for place, hit in enumerate(hits):
                    entity = hit["entity"]
                    positions[row, place] = position = int(entity["position"])
                    vectors[row, place] = entity["vector"]
                    if position not in documents:
                        documents[position] = self._document(position, entity["document"])
        return Candidates(positions, vectors, documents)

    def _search(self, queries: Float32, count: int, meets: str, deadline: float) -> Any:  # noqa: ANN401
        def question(client: Any, limit: float) -> Any:  # noqa: ANN401
            return client.search(
                self.name,
                [*queries],
                filter=meets,
                anns_field="vector",
                limit=count,
                search_params={"metric_type": "IP", "params": {"ef": max(self._breadth, count)}},
                output_fields=_FIELDS,
                consistency_level="Eventually",
                timeout=left(limit),
            )

        return self._servers.ask(self.name, question, deadline)

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """See Collection.fetch."""
        found: dict[int, Any] = {}
        for start in range(0, len(positions), ROWS_A_REQUEST):
            part = positions[start : start + ROWS_A_REQUEST].tolist()
            for each in self._query(f"position in {part}", _FIELDS, deadline):
                found[int(each["position"])] = each
        wanted = positions.tolist()
        if missing := [position for position in wanted if position not in found]:
            raise missing_rows(self.name, missing)
        vectors = np.array([found[position]["vector"] for position in wanted], dtype=np.float32)
        documents = [self._document(position, found[position]["document"]) for position in wanted]
        return Rows(vectors.reshape(len(wanted), self.dimension), documents)

    def where(self, wanted: Filter, most: int, deadline: float) -> Positions:
        """See Collection.where."""
        return self._positions(condition(wanted, DIALECT), most, deadline)

    def find(self, document_id: str, deadline: float) -> Positions:
        """See Collection.find; Milvus reads the tokens of all rows for it."""
        own = self._positions(id_condition(document_id, DIALECT, chunks=False), 1, deadline)
        if len(own):
            return own
        return self._positions(id_condition(document_id, DIALECT, chunks=True), None, deadline)

    def state(self, deadline: float) -> CollectionState:
        """See Collection.state."""

        def question(client: Any, limit: float) -> CollectionState:  # noqa: ANN401
            pending = _pending_rows(client, self.name, limit)
            loaded = client.get_load_state(self.name, timeout=left(limit))["state"] == LoadState.Loaded
            if loaded and pending is not None:
                counted = client.query(
                    self.name, output_fields=["count(*)"], consistency_level="Strong", timeout=left(limit)
                )
                rows = int(counted[0]["count(*)"])
            else:
                rows = int(client.get_collection_stats(self.name, timeout=left(limit))["row_count"])
            return CollectionState(self.dimension, rows, pending is not None, pending or 0, loaded)

        return CollectionState.of_all(self._servers.ask_each(self.name, question, deadline))

    def _positions(self, meets: str, most: int | None, deadline: float) -> Positions:
        found = self._query(meets, ["position"], deadline, most)
        return np.array(sorted(int(each["position"]) for each in found), dtype=np.int64)

    def _query(self, meets: str, fields: list[str], deadline: float, most: int | None = None) -> Any:  # noqa: ANN401
        def question(client: Any, limit: float) -> Any:  # noqa: ANN401
            options = {} if most is None else {"limit": most}
            return client.query(
                self.name,
                filter=meets,
                output_fields=fields,
                consistency_level="Eventually",
                timeout=left(limit),
                **options,
            )

        return self._servers.ask(self.name, question, deadline)

    def _document(self, position: int, written: str) -> Document:
        try:
            return read_document(written)
        except ValueError as error:
            raise ReleaseError(f"{self.name}: holds no document at {position}; upload it again") from error


def _pending_rows(client: Any, name: str, limit: float) -> int | None:  # noqa: ANN401
    """Return how many rows the index does not have yet, None where there is no index, or one that failed."""
    if not client.list_indexes(name, field_name="vector", timeout=left(limit)):
        return None
    index = client.describe_index(name, "vector", timeout=left(limit))
    if index is None or index.get("state") == "Failed":
        return None
    unfinished = 0 if index.get("state") == "Finished" else 1
    return max(
        int(index.get("pending_index_rows", 0)), int(index["total_rows"]) - int(index["indexed_rows"]), unfinished
    )
