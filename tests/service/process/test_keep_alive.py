"""Idle connections: how long they are kept, and which of them a new one replaces."""

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.service.http.connection_table import ConnectionTable
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings
from tests.service.process.wire import WHOLE, answer, connected, error, rest
from tests.service_process import ServiceProcess

_SECONDS = 3.0
_HALF_NEXT = WHOLE + WHOLE[:20]


@pytest.fixture(scope="module")
def brief(releases: Path) -> Iterator[ServiceProcess]:
    """A service that keeps idle connections longer than it waits for requests."""
    settings = {"TAUGATE_KEEP_ALIVE_SECONDS": str(_SECONDS), "TAUGATE_RECEIVE_SECONDS": "1"}
    with ServiceProcess(releases, **settings) as service:
        yield service.ready()


def _answered(connection: socket.socket, request: bytes = WHOLE) -> bool:
    return answer(connection, request).startswith(b"HTTP/1.1 200 ")


def test_default_exceeds_balancer_idle_timeout() -> None:
    assert Settings(releases=Path("nowhere")).connections.keep_alive_seconds == 75


@pytest.mark.slow
def test_idle_connection_lasts_keep_alive_time(brief: ServiceProcess) -> None:
    with connected(brief) as connection:
        for _ in range(2):
            assert _answered(connection)
            time.sleep(2)  # longer than the service waits for a request that has begun
        assert _answered(connection)
        ended, seconds = rest(connection)
    assert ended == b""
    assert _SECONDS - 0.2 < seconds < _SECONDS + 3


@pytest.mark.parametrize("sent", [_HALF_NEXT, WHOLE], ids=["with the request before", "later"])
def test_partial_request_times_out_sooner(brief: ServiceProcess, sent: bytes) -> None:
    with connected(brief) as connection:
        assert _answered(connection, sent)
        if sent == WHOLE:
            connection.sendall(WHOLE[:20])
        reply, seconds = rest(connection)
    assert error(reply) == (408, "request_timeout")
    assert seconds < _SECONDS


@pytest.mark.slow
def test_connection_idle_after_refused_body_is_closed(brief: ServiceProcess) -> None:
    """The reply comes before the body. The time to keep an idle connection begins with the end of the body."""
    head = b"POST /admin/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
    with connected(brief) as connection:
        assert answer(connection, head).startswith(b"HTTP/1.1 403 ")
        connection.sendall(b"body")
        assert _answered(connection)
        assert answer(connection, head).startswith(b"HTTP/1.1 403 ")
        connection.sendall(b"body")
        ended, seconds = rest(connection)
    assert ended == b""
    assert _SECONDS - 0.2 < seconds < _SECONDS + 3


def test_unused_connection_closes_sooner(brief: ServiceProcess) -> None:
    with connected(brief) as connection:
        assert rest(connection)[1] < _SECONDS


class _Connection:
    """A connection of a table, which notes whether it was closed.

    Attributes:
        is_idle: Whether it waits for its next request.
        since: Time since which it has waited.
    """

    def __init__(self, idle_seconds: float | None = None) -> None:
        """Make a connection that has been idle for so long; None: a request is in progress."""
        self.is_idle = idle_seconds is not None
        self.since = asyncio.get_running_loop().time() - (idle_seconds or 0.0)
        self.closed = False

    def abort(self) -> None:
        self.closed = True

    def unread(self) -> int:
        return 0

    def close_if_late(self, now: float) -> None:
        raise AssertionError


def _full_table(*idle_seconds: float | None) -> tuple[ConnectionTable, list[_Connection]]:
    """A full table of authenticated connections."""
    table = ConnectionTable(Settings(releases=Path("nowhere"), max_connections=len(idle_seconds)), Metrics())
    connections = [_Connection(seconds) for seconds in idle_seconds]
    for connection in connections:
        assert table.enter(connection)
        table.authenticate(connection)
        table.replied(connection)
    return table, connections


def test_full_table_closes_longest_idle() -> None:
    async def run() -> None:
        table, connections = _full_table(None, 40, 30, 20)
        for further in (_Connection(), _Connection(), _Connection()):
            assert table.enter(further)
            table.authenticate(further)
        assert [connection.closed for connection in connections] == [False, True, True, True]
        assert not table.enter(_Connection()), "all others have a request in progress"

    asyncio.run(run())


def test_full_table_of_active_connections_refuses() -> None:
    async def run() -> None:
        table, connections = _full_table(None, 4, 3)
        assert not table.enter(_Connection())
        assert not any(connection.closed for connection in connections)

    asyncio.run(run())


def test_full_table_spares_busy_connection() -> None:
    async def run() -> None:
        table, (first, second) = _full_table(40, 30)
        first.is_idle = False
        assert table.enter(_Connection())
        assert (first.closed, second.closed) == (False, True)

    asyncio.run(run())


def test_full_table_replaces_unauthenticated_first() -> None:
    async def run() -> None:
        table, (idle, gone) = _full_table(40, 30)
        table.leave(gone)
        silent = _Connection()
        assert table.enter(silent)
        assert table.enter(_Connection())
        assert (idle.closed, silent.closed) == (False, True)

    asyncio.run(run())


@pytest.mark.slow
def test_idle_connections_make_room(releases: Path) -> None:
    """With every place taken by a client that was answered and is idle, a new one is answered within seconds."""
    with ServiceProcess(releases, TAUGATE_MAX_CONNECTIONS="20") as service:
        service.ready()
        service.http.close()
        kept = [socket.create_connection(("127.0.0.1", service.port), timeout=20) for _ in range(20)]
        assert all(_answered(connection) for connection in kept)
        deadline = time.monotonic() + 10
        while True:
            with connected(service) as late:
                if _answered(late):
                    break
            assert time.monotonic() < deadline, "refused until the keep-alive time is over"
            time.sleep(0.2)
        assert kept[0].recv(1) == b"", "the one that was idle longest made room"
        assert _answered(kept[-1])
        for connection in kept:
            connection.close()
