"""PostgreSQL servers that hold the same tables, through `psycopg`: connections, deadlines, and what a refusal says."""

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
from taugate.retrieval.engines.replicas import Replicas

_Answer = TypeVar("_Answer")


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits for no answer beyond its deadline, of `time.monotonic()`."""

    deadline: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:  # noqa: ANN401
        """See psycopg.Connection.wait."""
        if self.deadline is not None and timeout is None:
            timeout = self.left()
        return super().wait(gen, interval, timeout)

    def left(self) -> float:
        """Return how many seconds are left, at least a thousandth."""
        return max((self.deadline or 0.0) - time.monotonic(), 0.001)


class _Pool:
    """Idle connections to one server, one for each question at a time; one that failed is closed."""

    def __init__(self, password: str, url: str) -> None:
        self._url, self._password = url, password
        self._idle: LifoQueue[Connection] = LifoQueue()

    def ask(self, question: Callable[[Connection], _Answer], deadline: float) -> _Answer:
        """Ask in a transaction of its own."""
        try:
            connection = self._idle.get_nowait()
            connection.deadline = deadline
        except Empty:
            connection = self._connect(deadline)
        try:
            answer = question(connection)
            connection.commit()
        except BaseException as error:
            _close(connection)
            if _is_no_answer(error):  # nor will the others get one
                self._close_idle()
            raise
        self._idle.put(connection)
        return answer

    def _close_idle(self) -> None:
        with suppress(Empty):
            while True:
                _close(self._idle.get_nowait())

    def _connect(self, deadline: float) -> Connection:
        # libpq counts whole seconds, and takes fewer than two as two.
        seconds = max(2, int(deadline - time.monotonic()))
        options: dict[str, Any] = {"password": self._password} if self._password else {}
        connection = Connection.connect(self._url, connect_timeout=seconds, application_name="taugate", **options)
        connection.deadline = deadline
        return connection


class PostgresServers:
    """Servers that are asked in transactions; safe to use from several threads.

    Attributes:
        urls: Postgresql://user@host:port/database, one or more.
        password: Of that user; empty for none.

    Raises:
        InputError: For a URL of anything else.
    """

    def __init__(self, urls: Sequence[str], password: str) -> None:
        for url in urls:
            _check_url(url)
        self._replicas = Replicas("pgvector", urls, partial(_pool, password), _is_no_answer)

    def ask(
        self, name: str, question: Callable[[Connection], _Answer], deadline: float, *, again: bool = True
    ) -> _Answer:
        """Ask the server that answered last, and where it does not, the next one.

        Args:
            name: Of the collection that is asked about, empty for none.
            question: Of a connection.
            deadline: See Replicas.ask.
            again: See Replicas.ask.

        Raises:
            EngineUnavailable: , and ReleaseError where PostgreSQL refuses.
        """
        with _refusals(name):
            return self._replicas.ask(lambda pool, limit: pool.ask(question, limit), deadline, again=again)

    def ask_each(self, name: str, question: Callable[[Connection], _Answer], deadline: float) -> list[_Answer]:
        """Ask every server; see Replicas.ask_each, and `ask` for parameters and errors."""
        with _refusals(name):
            return self._replicas.ask_each(lambda pool, limit: pool.ask(question, limit), deadline)


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Say in a ReleaseError what PostgreSQL refuses, which is an answer, if not the one that was asked for."""
    try:
        yield
    except psycopg.errors.UndefinedTable as error:
        raise no_such_collection(name) from error
    except psycopg.Error as error:
        said = str(error).strip().partition("\n")[0]
        raise ReleaseError(
            f"{name or 'pgvector'}: PostgreSQL refuses ({said}); mend what it names, or upload the collection again"
        ) from error


def _pool(password: str, url: str, deadline: float) -> _Pool:
    return _Pool(password, url)


def _check_url(url: str) -> None:
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # whose text repeats the URL
        raise not_a_url("pgvector", "postgresql://USER@HOST:5432/DATABASE") from None


def _close(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.close()


def _is_no_answer(error: BaseException) -> bool:
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
