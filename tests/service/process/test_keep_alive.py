"""Idle connections: how long they are kept, and which of them a new one replaces."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from taugate.service.http.connection_table import _MIN_IDLE_SECONDS
from taugate.service.settings import Settings
from tests.pace import at_most
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


def _check_end(connection: socket.socket, began: float) -> None:
    """Check that the service closes a connection after the time that it keeps an idle one, and not much later."""
    ended, seconds = rest(connection)
    assert ended == b""
    assert time.monotonic() - began > _SECONDS - 0.1
    assert seconds < _SECONDS + at_most(3)


def test_default_exceeds_balancer_idle_timeout() -> None:
    assert Settings(releases=Path("nowhere")).connections.keep_alive_seconds == 75


@pytest.mark.slow
def test_idle_connection_lasts_keep_alive_time(brief: ServiceProcess) -> None:
    with connected(brief) as connection:
        for _ in range(2):
            assert _answered(connection)
            time.sleep(2)  # longer than the service waits for a request that has begun
        began = time.monotonic()
        assert _answered(connection)
        _check_end(connection, began)


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
        began = time.monotonic()
        connection.sendall(b"body")
        _check_end(connection, began)


def test_unused_connection_closes_sooner(brief: ServiceProcess) -> None:
    with connected(brief) as connection:
        assert rest(connection)[1] < _SECONDS


@pytest.mark.slow
def test_full_table_replaces_unauthenticated_then_longest_idle(releases: Path) -> None:
    """With every place taken by a client that was answered and is idle, a new one is answered within seconds."""
    settings = {"TAUGATE_MAX_CONNECTIONS": "20", "TAUGATE_RECEIVE_SECONDS": "60"}
    with ServiceProcess(releases, **settings) as service, ExitStack() as stack:
        service.ready()
        service.http.close()
        kept = [stack.enter_context(connected(service)) for _ in range(20)]
        assert all(_answered(connection) for connection in kept)
        kept[0].sendall(WHOLE[:20])  # no longer idle
        with connected(service) as early:
            assert error(rest(early)[0]) == (503, "overloaded")
        time.sleep(_MIN_IDLE_SECONDS)
        late = stack.enter_context(connected(service))
        assert _answered(late)
        assert rest(kept[1])[0] == b"", "the one that was idle longest made room"
        silent = stack.enter_context(connected(service))
        assert rest(kept[2])[0] == b""
        assert _answered(stack.enter_context(connected(service)))
        assert rest(silent)[0] == b""
        assert all(_answered(connection) for connection in (*kept[3:], late))
        assert _answered(kept[0], WHOLE[20:])
