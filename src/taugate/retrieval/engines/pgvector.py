"""PostgreSQL with pgvector, through `psycopg`: a primary and any number of replicas.

A row is a position, a vector, the document's JSON, tokens (an array) and numbers (jsonb) for filters. A collection is a
table that is written by COPY; `finish` builds its graph.

PostgreSQL decides for each search whether to go through the graph or to compare the query with every row: by the
breadth, among other things. Two settings keep that sound. Vectors are stored in their rows (PLAIN): beside them (TOAST)
they take several times as long to compare, which its planner does not count. And every search is planned anew
(`plan_cache_mode`): a connection keeps the plan of a statement, and that of a broad search, the scan of all rows, would
answer narrow ones too, so that the gate would find what no other connection finds.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import psycopg

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import Document, read_document, write_document
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
from taugate.retrieval.engines.filters import Dialect, condition, filterable, id_condition
from taugate.retrieval.engines.postgres import Connection, PostgresServers
from taugate.retrieval.vectors.similarity import Float32

_MAX_DIMENSIONS = 2000  # of a vector in an HNSW index (pgvector README, "HNSW")
_MAX_LIST = 1000  # hnsw.ef_search; what is asked for beyond it, the iterative scan finds
_LOOK_AT_ALL = 0.5  # of the time that is left, for a search beside the graph
_FIELDS = "position, vector, document"

DIALECT = Dialect(
    has_any=lambda tokens: "tokens && ARRAY[" + ", ".join(f"'{each}'" for each in tokens) + "]::text[]",
    compares=lambda key, sign, number: f"(numbers->>'{key}')::float8 {sign} {number!r}::float8",
)


class PgvectorEngine:
    """One or more PostgreSQL servers, of which the first one takes writes.

    Attributes:
        urls: Postgresql://user@host:port/database.
        password: Of that user; empty for none.

    Raises:
        InputError: For a URL of anything else.
    """

    kind: EngineKind = "pgvector"

    def __init__(self, urls: Sequence[str], password: str = "") -> None:
        self._readers = PostgresServers(urls, password)
        self._writer = PostgresServers(urls[:1], password)

    def create(self, name: str, dimension: int, deadline: float) -> None:
        """See Engine.create."""
        if dimension > _MAX_DIMENSIONS:
            raise InputError(f"pgvector indexes up to {_MAX_DIMENSIONS} dimensions, not {dimension}; use a projection")

        def question(connection: Connection) -> None:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            if _exists(connection, name):
                raise ReleaseError(f"the engine already has a collection {name}; drop it to upload it again")
            connection.execute(
                f"CREATE TABLE {check_name(name)} (position bigint PRIMARY KEY, "
                f"vector vector({dimension}) STORAGE PLAIN NOT NULL, "
                "document text NOT NULL, tokens text[] NOT NULL, numbers jsonb NOT NULL)".encode()
            )
            connection.execute(f"COMMENT ON TABLE {name} IS '{time_written(time.time())}'".encode())

        self._write(name, question, deadline)

    def upload(self, name: str, first: int, shard: Rows, deadline: float) -> None:
        """See Engine.upload."""

        def question(connection: Connection) -> None:
            columns = f"{_FIELDS}, tokens, numbers"
            with (
                connection.cursor() as cursor,
                cursor.copy(f"COPY {check_name(name)} ({columns}) FROM STDIN".encode()) as copy,
            ):
                for i, (vector, document) in enumerate(zip(shard.vectors, shard.documents, strict=True)):
                    held = filterable(document)
                    written, numbers = write_document(document).decode(), orjson.dumps(held.numbers).decode()
                    copy.write_row((first + i, _as_text(vector), written, held.tokens, numbers))

        self._write(name, question, deadline)

    def finish(self, name: str, graph: GraphParameters, deadline: float) -> None:
        """See Engine.finish."""

        def question(connection: Connection) -> None:
            create = f"CREATE INDEX IF NOT EXISTS {check_name(name)}"  # and what PostgreSQL itself would call it
            connection.execute(f"{create}_tokens_idx ON {name} USING gin (tokens)".encode())
            connection.execute(
                f"{create}_vector_idx ON {name} USING hnsw (vector vector_ip_ops) "
                f"WITH (m = {graph.edges}, ef_construction = {graph.edge_candidates})".encode()
            )
            connection.execute(f"ANALYZE {name}".encode())

        self._write(name, question, deadline)

    def drop(self, name: str, deadline: float) -> None:
        """See Engine.drop."""
        self._write(
            name, lambda connection: connection.execute(f"DROP TABLE IF EXISTS {check_name(name)}".encode()), deadline
        )

    def names(self, deadline: float) -> list[str]:
        """See Engine.names."""
        question = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND starts_with(tablename, %s)"
        rows = self._readers.ask("", lambda connection: connection.execute(question, (PREFIX,)).fetchall(), deadline)
        return sorted(name for (name,) in rows)

    def created(self, name: str, deadline: float) -> float | None:
        """See Engine.created."""

        def question(connection: Connection) -> float | None:
            comment = connection.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", (check_name(name),))
            found = comment.fetchone()
            return time_read(found[0]) if found else None

        return self._readers.ask(name, question, deadline)

    def collection(self, name: str, breadth: int, deadline: float) -> "PgvectorCollection":
        """See Engine.collection."""

        def dimension(connection: Connection) -> int:
            if not _exists(connection, name):
                raise no_such_collection(name)
            question = "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'vector'"
            found = connection.execute(question, (name,)).fetchone()
            return int(found[0]) if found else 0

        return PgvectorCollection(name, self._readers.ask(name, dimension, deadline), breadth, self._readers)

    def _write(self, name: str, question: Callable[[Connection], object], deadline: float) -> None:
        self._writer.ask(name, question, deadline, again=False)


class PgvectorCollection:
    """A collection in PostgreSQL; see Collection.

    Attributes:
        dimension: Of its vectors.
        breadth: Hnsw.ef_search of a search.
        servers: That hold it.
    """

    def __init__(self, name: str, dimension: int, breadth: int, servers: PostgresServers) -> None:
        self.name, self.dimension = name, dimension
        self._breadth, self._servers = breadth, servers

    def propose(self, queries: Float32, count: int, wanted: Filter, deadline: float) -> Candidates:
        """See Collection.propose."""
        check_dimension(self.name, queries, self.dimension)
        meets = f"WHERE {condition(wanted, DIALECT)}" if wanted else ""
        statement = f"SELECT {_FIELDS} FROM {self.name} {meets} ORDER BY vector <#> %s::vector LIMIT {count}"  # noqa: S608
        breadth = min(max(self._breadth, count), _MAX_LIST)

        def question(connection: Connection) -> list[list[tuple[Any, ...]]]:
            connection.execute(
                "SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', %s, true), "
                "set_config('plan_cache_mode', %s, true)",
                (str(breadth), "relaxed_order", "force_custom_plan"),
            )
            cursor, sent = connection.cursor(binary=True), [_as_text(query) for query in queries]
            found = [cursor.execute(statement.encode(), (query,)).fetchall() for query in sent]
            if wanted and any(len(hits) < count for hits in found):
                _look_at_all(connection, statement, sent, count, found)
            return found

        positions = np.full((len(queries), count), -1, dtype=np.int64)
        vectors = np.zeros((len(queries), count, self.dimension), dtype=np.float32)
        documents: dict[int, Document] = {}
        for row, hits in enumerate(self._servers.ask(self.name, question, deadline)):
            for place, (position, vector, written) in enumerate(hits):
                positions[row, place], vectors[row, place] = position, _as_numbers(vector)
                if position not in documents:
                    documents[position] = self._document(position, written)
        return Candidates(positions, vectors, documents)

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """See Collection.fetch."""

        def question(connection: Connection) -> list[tuple[Any, ...]]:
            statement = f"SELECT {_FIELDS} FROM {self.name} WHERE position = ANY(%s::bigint[])"  # noqa: S608
            return connection.cursor(binary=True).execute(statement.encode(), (positions.tolist(),)).fetchall()

        read = self._servers.ask(self.name, question, deadline)
        found = {position: (vector, written) for position, vector, written in read}
        wanted = positions.tolist()
        if missing := [position for position in wanted if position not in found]:
            raise missing_rows(self.name, missing)
        vectors = np.array([_as_numbers(found[position][0]) for position in wanted], dtype=np.float32)
        documents = [self._document(position, found[position][1]) for position in wanted]
        return Rows(vectors.reshape(len(wanted), self.dimension), documents)

    def where(self, wanted: Filter, most: int, deadline: float) -> Positions:
        """See Collection.where."""
        return self._positions(condition(wanted, DIALECT), most, deadline)

    def find(self, document_id: str, deadline: float) -> Positions:
        """See Collection.find."""
        own = self._positions(id_condition(document_id, DIALECT, chunks=False), 1, deadline)
        return own if len(own) else self._positions(id_condition(document_id, DIALECT, chunks=True), None, deadline)

    def state(self, deadline: float) -> CollectionState:
        """See Collection.state."""

        def question(connection: Connection) -> CollectionState:
            if not _exists(connection, self.name):  # on a replica that is behind
                return CollectionState(self.dimension, 0, built=False, pending=0, loaded=False)
            (rows,) = connection.execute(f"SELECT count(*) FROM {self.name}".encode()).fetchone() or (0,)  # noqa: S608
            built = connection.execute(
                "SELECT coalesce(bool_and(indisvalid AND indisready), false) FROM pg_index "
                "JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam "
                "WHERE indrelid = to_regclass(%s) AND amname = 'hnsw'",
                (self.name,),
            ).fetchone()
            return CollectionState(self.dimension, int(rows), bool(built and built[0]), pending=0, loaded=True)

        return CollectionState.of_all(self._servers.ask_each(self.name, question, deadline))

    def _positions(self, meets: str, most: int | None, deadline: float) -> Positions:
        limit = "" if most is None else f" LIMIT {most}"
        statement = f"SELECT position FROM {self.name} WHERE {meets}{limit}"  # noqa: S608
        ask = lambda connection: connection.execute(statement.encode()).fetchall()  # noqa: E731
        found = self._servers.ask(self.name, ask, deadline)
        return np.array(sorted(position for (position,) in found), dtype=np.int64)

    def _document(self, position: int, written: str) -> Document:
        try:
            return read_document(written)
        except ValueError as error:
            raise ReleaseError(f"{self.name}: holds no document at {position}; upload it again") from error


def _look_at_all(
    connection: Connection, statement: str, queries: Sequence[str], count: int, found: list[list[tuple[Any, ...]]]
) -> None:
    """Search again for those queries that a scan of the graph found too few rows for, among all that meet the filter.

    A scan ends after hnsw.max_scan_tuples, which may all be nearer to the query than any row that meets the filter. A
    search that takes longer than a share of the time that is left is given up: else it would end as a server that does
    not answer.

    Args:
        statement: Of the search.
        queries: As it takes them.
        count: How many rows they ask for.
        found: Of each; replaced.
    """
    most = max(1, int(1000 * _LOOK_AT_ALL * connection.left()))  # milliseconds
    connection.execute(
        "SELECT set_config('enable_indexscan', 'off', true), set_config('statement_timeout', %s, true)", (str(most),)
    )
    cursor = connection.cursor(binary=True)
    with suppress(psycopg.errors.QueryCanceled):
        for row, query in enumerate(queries):
            if len(found[row]) < count:
                # A plan that is prepared already would still scan the graph.
                found[row] = cursor.execute(statement.encode(), (query,), prepare=False).fetchall()


def _exists(connection: Connection, name: str) -> bool:
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (check_name(name),)).fetchone()
    return bool(found and found[0])


def _as_text(vector: Float32) -> str:
    """Write a vector as PostgreSQL reads it; the same float32 numbers are read back."""
    return orjson.dumps(np.ascontiguousarray(vector), option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _as_numbers(sent: bytes) -> Float32:
    """Parse a vector as PostgreSQL sends it: its dimension and a zero, 2 bytes each, then float32, all big-endian."""
    return np.frombuffer(sent, dtype=">f4", offset=4).astype(np.float32)
