"""PostgreSQL servers that hold the same tables, through `psycopg`: connections, deadlines and refusals."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, LifoQueue
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from taugate.errors import ReleaseError
from taugate.retrieval.engines.engine import no_such_collection, not_a_url
from taugate_engines.replicas import Replicas

_Result = TypeVar("_Result")


class PgConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits for replies only until its deadline, a time of `time.monotonic()`."""

    deadline: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:  # noqa: ANN401
        """See psycopg.Connection.wait."""
        if self.deadline is not None and timeout is None:
            timeout = self.remaining()
        return super().wait(gen, interval, timeout)

    def remaining(self) -> float:
        """Return the seconds until the deadline, at least 0.001."""
        return max((self.deadline or 0.0) - time.monotonic(), 0.001)


class _Pool:
    """Idle connections to one server, used by one request at a time; a failed connection is closed."""

    def __init__(self, password: str, url: str, *, read_only: bool) -> None:
        self._url, self._password, self._read_only = url, password, read_only
        self._idle: LifoQueue[PgConnection] = LifoQueue()

    def run(self, request: Callable[[PgConnection], _Result], deadline: float) -> _Result:
        """Run a request in its own transaction."""
        try:
            connection = self._idle.get_nowait()
            connection.deadline = deadline
        except Empty:
            connection = self._connect(deadline)
        try:
            result = request(connection)
            connection.commit()
        except BaseException as error:
            _close(connection)
            if _is_unavailable(error):  # the idle connections would fail, too
                self._close_idle()
            raise
        self._idle.put(connection)
        return result

    def _close_idle(self) -> None:
        with suppress(Empty):
            while True:
                _close(self._idle.get_nowait())

    def _connect(self, deadline: float) -> PgConnection:
        # libpq counts full seconds, with a minimum of two.
        seconds = max(2, int(deadline - time.monotonic()))
        options: dict[str, Any] = {"password": self._password} if self._password else {}
        connection = PgConnection.connect(self._url, connect_timeout=seconds, application_name="taugate", **options)
        connection.deadline = deadline
        connection.read_only = self._read_only or None
        return connection


class PostgresServers:
    """Servers that run requests in transactions; safe to use from several threads.

    Args:
        password: Password of that user; empty if there is none.
    """

    def __init__(
        self,
        urls: Sequence[str],
        password: str,
        *,
        read_only: bool = False,
        remedy: str = "fix the cause, or upload the collection again",
    ) -> None:
        for url in urls:
            _check_url(url)
        self._remedy = remedy
        self._replicas = Replicas("pgvector", urls, partial(_pool, password, read_only), _is_unavailable)

    def run(
        self, name: str, request: Callable[[PgConnection], _Result], deadline: float, *, retry: bool = True
    ) -> _Result:
        """Run a request on the server that replied last or, if it fails, on the next one.

        Args:
            name: Collection of the request, for messages; empty if there is none.
            request: Called with a connection.
        """
        with _refusals(name, self._remedy):
            return self._replicas.run(lambda pool, limit: pool.run(request, limit), deadline, retry=retry)

    def run_on_each(self, name: str, request: Callable[[PgConnection], _Result], deadline: float) -> list[_Result]:
        """Run a request on every server; see Replicas.run_on_each, and `run` for parameters and errors."""
        with _refusals(name, self._remedy):
            return self._replicas.run_on_each(lambda pool, limit: pool.run(request, limit), deadline)


@contextmanager
def _refusals(name: str, remedy: str) -> Iterator[None]:
    """Raise a refusal of PostgreSQL as ReleaseError."""
    try:
        yield
    except psycopg.errors.UndefinedTable as error:
        if name:
            raise no_such_collection(name) from error
        raise ReleaseError(f"{str(error).partition(chr(10))[0]}; {remedy}") from error
    except psycopg.Error as error:
        message = str(error).strip().partition("\n")[0]
        raise ReleaseError(f"{name or 'pgvector'}: PostgreSQL refuses ({message}); {remedy}") from error


def _pool(password: str, read_only: bool, url: str, deadline: float) -> _Pool:
    return _Pool(password, url, read_only=read_only)


def _check_url(url: str) -> None:
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its text repeats the URL
        raise not_a_url("pgvector", "postgresql://USER@HOST:5432/DATABASE") from None


def _close(connection: PgConnection) -> None:
    with suppress(psycopg.Error):
        connection.close()


def _is_unavailable(error: BaseException) -> bool:
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
