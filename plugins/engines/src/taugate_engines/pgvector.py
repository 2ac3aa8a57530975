"""PostgreSQL with pgvector, through `psycopg`: a primary and any number of replicas.

A row holds a position, a vector, the document's JSON, tokens (an array) and numbers (jsonb) for filters. A collection
is a table that is written by COPY; `finish` builds its graph.

For each search PostgreSQL decides, partly by the breadth, whether to use the graph or to compare the query with every
row. Two settings keep that choice sound. Vectors are stored in their rows (PLAIN), because vectors stored apart (TOAST)
take several times as long to compare, which the planner ignores. And every search is planned anew (`plan_cache_mode`),
because a connection caches plans: the plan of a broad search, a scan of all rows, would also be used for narrow ones,
and the gate would then measure results that other connections do not return.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import psycopg

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
    stored_document,
    time_read,
    time_written,
)
from taugate.retrieval.engines.filters import FilterDialect, condition, filterable, id_condition
from taugate_engines.postgres import PgConnection, PostgresServers

_MAX_DIMENSIONS = 2000  # of a vector in an HNSW index (pgvector README, "HNSW")
_MAX_LIST = 1000  # limit of hnsw.ef_search; the iterative scan finds further results
_SCAN_SHARE = 0.5  # share of the remaining time for a search without the graph
_FIELDS = "position, vector, document"

DIALECT = FilterDialect(
    has_any=lambda tokens: "tokens && ARRAY[" + ", ".join(f"'{token}'" for token in tokens) + "]::text[]",
    compares=lambda key, sign, number: f"(numbers->>'{key}')::float8 {sign} {number!r}::float8",
)


class PgvectorEngine:
    """One or more PostgreSQL servers, of which the first accepts writes.

    Args:
        password: Password of that user; empty if there is none.
    """

    kind: EngineKind = "pgvector"
    exact = False

    def __init__(self, urls: Sequence[str], password: str = "") -> None:
        self._readers = PostgresServers(urls, password)
        self._writer = PostgresServers(urls[:1], password)

    def create(self, name: str, dimension: int, deadline: float) -> None:
        """See Engine.create."""
        if dimension > _MAX_DIMENSIONS:
            raise InputError(f"pgvector indexes up to {_MAX_DIMENSIONS} dimensions, not {dimension}; use a projection")

        def request(connection: PgConnection) -> None:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            if _exists(connection, name):
                raise ReleaseError(f"the engine already has a collection {name}; drop it to upload it again")
            connection.execute(
                f"CREATE TABLE {check_name(name)} (position bigint PRIMARY KEY, "
                f"vector vector({dimension}) STORAGE PLAIN NOT NULL, "
                "document text NOT NULL, tokens text[] NOT NULL, numbers jsonb NOT NULL)".encode()
            )
            connection.execute(f"COMMENT ON TABLE {name} IS '{time_written(time.time())}'".encode())

        self._write(name, request, deadline)

    def upload(self, name: str, first: int, shard: Rows, deadline: float) -> None:
        """See Engine.upload."""

        def request(connection: PgConnection) -> None:
            columns = f"{_FIELDS}, tokens, numbers"
            with (
                connection.cursor() as cursor,
                cursor.copy(f"COPY {check_name(name)} ({columns}) FROM STDIN".encode()) as copy,
            ):
                for i, (vector, document) in enumerate(zip(shard.vectors, shard.documents, strict=True)):
                    fields = filterable(document)
                    written, numbers = write_document(document).decode(), orjson.dumps(fields.numbers).decode()
                    copy.write_row((first + i, _as_text(vector), written, fields.tokens, numbers))

        self._write(name, request, deadline)

    def finish(self, name: str, graph: GraphParameters, deadline: float) -> None:
        """See Engine.finish."""

        def request(connection: PgConnection) -> None:
            create = f"CREATE INDEX IF NOT EXISTS {check_name(name)}"  # names as PostgreSQL would choose them
            connection.execute(f"{create}_tokens_idx ON {name} USING gin (tokens)".encode())
            connection.execute(
                f"{create}_vector_idx ON {name} USING hnsw (vector vector_ip_ops) "
                f"WITH (m = {graph.edges}, ef_construction = {graph.edge_candidates})".encode()
            )
            connection.execute(f"ANALYZE {name}".encode())

        self._write(name, request, deadline)

    def drop(self, name: str, deadline: float) -> None:
        """See Engine.drop."""
        self._write(
            name, lambda connection: connection.execute(f"DROP TABLE IF EXISTS {check_name(name)}".encode()), deadline
        )

    def names(self, deadline: float) -> list[str]:
        """See Engine.names."""
        request = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND starts_with(tablename, %s)"
        rows = self._readers.run("", lambda connection: connection.execute(request, (PREFIX,)).fetchall(), deadline)
        return sorted(name for (name,) in rows)

    def created(self, name: str, deadline: float) -> float | None:
        """See Engine.created."""

        def request(connection: PgConnection) -> float | None:
            comment = connection.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", (check_name(name),))
            row = comment.fetchone()
            return time_read(row[0]) if row else None

        return self._readers.run(name, request, deadline)

    def collection(self, name: str, breadth: int, deadline: float) -> "PgvectorCollection":
        """See Engine.collection."""

        def dimension(connection: PgConnection) -> int:
            if not _exists(connection, name):
                raise no_such_collection(name)
            request = "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'vector'"
            row = connection.execute(request, (name,)).fetchone()
            return int(row[0]) if row else 0

        return PgvectorCollection(name, self._readers.run(name, dimension, deadline), breadth, self._readers)

    def _write(self, name: str, request: Callable[[PgConnection], object], deadline: float) -> None:
        self._writer.run(name, request, deadline, retry=False)


class PgvectorCollection:
    """A collection in PostgreSQL; see Collection."""

    def __init__(self, name: str, dimension: int, breadth: int, servers: PostgresServers) -> None:
        self.name, self.dimension = name, dimension
        self._breadth, self._servers = breadth, servers

    def propose(self, queries: Float32, count: int, query_filter: Filter, deadline: float) -> Candidates:
        """See Collection.propose."""
        check_dimension(self.name, queries, self.dimension)
        meets = f"WHERE {condition(query_filter, DIALECT)}" if query_filter else ""
        statement = f"SELECT {_FIELDS} FROM {self.name} {meets} ORDER BY vector <#> %s::vector LIMIT {count}"  # noqa: S608
        breadth = min(max(self._breadth, count), _MAX_LIST)

        def request(connection: PgConnection) -> list[list[tuple[Any, ...]]]:
            connection.execute(
                "SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', %s, true), "
                "set_config('plan_cache_mode', %s, true)",
                (str(breadth), "relaxed_order", "force_custom_plan"),
            )
            cursor, sent = connection.cursor(binary=True), [_as_text(query) for query in queries]
            results = [cursor.execute(statement.encode(), (query,)).fetchall() for query in sent]
            if query_filter and any(len(hits) < count for hits in results):
                _scan_all(connection, statement, sent, count, results)
            return results

        positions = np.full((len(queries), count), -1, dtype=np.int64)
        vectors = np.zeros((len(queries), count, self.dimension), dtype=np.float32)
        documents: dict[int, Document] = {}
        for row, hits in enumerate(self._servers.run(self.name, request, deadline)):
            for place, (position, vector, written) in enumerate(hits):
                positions[row, place], vectors[row, place] = position, _as_numbers(vector)
                if position not in documents:
                    documents[position] = stored_document(self.name, position, written)
        return Candidates(positions, vectors, documents)

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """See Collection.fetch."""

        def request(connection: PgConnection) -> list[tuple[Any, ...]]:
            statement = f"SELECT {_FIELDS} FROM {self.name} WHERE position = ANY(%s::bigint[])"  # noqa: S608
            return connection.cursor(binary=True).execute(statement.encode(), (positions.tolist(),)).fetchall()

        rows = self._servers.run(self.name, request, deadline)
        contents = {position: (vector, written) for position, vector, written in rows}
        requested = positions.tolist()
        if missing := [position for position in requested if position not in contents]:
            raise missing_rows(self.name, missing)
        vectors = np.array([_as_numbers(contents[position][0]) for position in requested], dtype=np.float32)
        documents = [stored_document(self.name, position, contents[position][1]) for position in requested]
        return Rows(vectors.reshape(len(requested), self.dimension), documents)

    def where(self, query_filter: Filter, limit: int, deadline: float, among: Positions | None = None) -> Positions:
        """See Collection.where."""
        meets = condition(query_filter, DIALECT)
        if among is not None:
            meets = f"position = ANY('{{{','.join(map(str, among.tolist()))}}}'::bigint[]) AND {meets}"
        return self._positions(meets, limit, deadline)

    def find(self, document_id: str, deadline: float) -> Positions:
        """See Collection.find."""
        passage = self._positions(id_condition(document_id, DIALECT, chunks=False), 1, deadline)
        if len(passage):
            return passage
        return self._positions(id_condition(document_id, DIALECT, chunks=True), None, deadline)

    def state(self, deadline: float) -> CollectionState:
        """See Collection.state."""

        def request(connection: PgConnection) -> CollectionState:
            if not _exists(connection, self.name):  # a replica may lag behind
                return CollectionState(self.dimension, 0, built=False, pending=0, loaded=False)
            (rows,) = connection.execute(f"SELECT count(*) FROM {self.name}".encode()).fetchone() or (0,)  # noqa: S608
            built = connection.execute(
                "SELECT coalesce(bool_and(indisvalid AND indisready), false) FROM pg_index "
                "JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam "
                "WHERE indrelid = to_regclass(%s) AND amname = 'hnsw'",
                (self.name,),
            ).fetchone()
            return CollectionState(self.dimension, int(rows), bool(built and built[0]), pending=0, loaded=True)

        return CollectionState.of_all(self._servers.run_on_each(self.name, request, deadline))

    def _positions(self, meets: str, max_rows: int | None, deadline: float) -> Positions:
        limit = "" if max_rows is None else f" LIMIT {max_rows}"
        statement = f"SELECT position FROM {self.name} WHERE {meets}{limit}"  # noqa: S608
        request = lambda connection: connection.execute(statement.encode()).fetchall()  # noqa: E731
        rows = self._servers.run(self.name, request, deadline)
        return np.array(sorted(position for (position,) in rows), dtype=np.int64)


def _scan_all(
    connection: PgConnection, statement: str, queries: Sequence[str], count: int, results: list[list[tuple[Any, ...]]]
) -> None:
    """Search again, without the graph, for queries that the graph returned too few rows for.

    A scan of the graph ends after hnsw.max_scan_tuples rows, all of which may be nearer to the query than any row that
    meets the filter. The search is abandoned after a share of the remaining time, because a timeout would look like an
    unresponsive server.

    Args:
        results: Rows of each query; short ones are replaced.
    """
    milliseconds = max(1, int(1000 * _SCAN_SHARE * connection.remaining()))
    connection.execute(
        "SELECT set_config('enable_indexscan', 'off', true), set_config('statement_timeout', %s, true)",
        (str(milliseconds),),
    )
    cursor = connection.cursor(binary=True)
    with suppress(psycopg.errors.QueryCanceled):
        for row, query in enumerate(queries):
            if len(results[row]) < count:
                # A prepared plan would still scan the graph.
                results[row] = cursor.execute(statement.encode(), (query,), prepare=False).fetchall()


def _exists(connection: PgConnection, name: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (check_name(name),)).fetchone()
    return bool(row and row[0])


def _as_text(vector: Float32) -> str:
    """Format a vector for PostgreSQL so that the same float32 numbers are read back."""
    return orjson.dumps(np.ascontiguousarray(vector), option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _as_numbers(sent: bytes) -> Float32:
    """Parse a vector in PostgreSQL's binary format: dimension and zero, 2 bytes each, then float32, all big-endian."""
    return np.frombuffer(sent, dtype=">f4", offset=4).astype(np.float32)
