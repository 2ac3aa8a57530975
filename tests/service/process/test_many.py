"""Many open connections do not lock other clients out."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from taugate.service.http.connection_table import ConnectionTable
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings
from tests.service.access.files import APP, bearer, entry, write
from tests.service.process.wire import HALF, WHOLE, connected, error, refused, rest
from tests.service_process import ServiceProcess

MOST = 50


@pytest.fixture(scope="module")
def small(releases: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases, TAUGATE_MAX_CONNECTIONS=str(MOST)) as process:
        yield process.ready()


@contextmanager
def crowd(service: ServiceProcess, number: int, sent: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connected(service, sent)) for _ in range(number)]


def open_connections(service: ServiceProcess) -> float:
    lines = service.http.get("/metrics").text.splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith("taugate_connections "))
    return float(value)


@pytest.mark.parametrize("sent", [b"", b"GET /li", HALF])
@pytest.mark.slow
def test_unauthenticated_connections_are_replaced(small: ServiceProcess, sent: bytes) -> None:
    before = refused(small, "connections")
    with crowd(small, 6 * MOST, sent):
        with connected(small, WHOLE) as one, connected(small, WHOLE) as other:
            assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
            assert other.recv(65536).startswith(b"HTTP/1.1 200 ")
        for _ in range(20):
            assert small.http.post("/search", json={"query": "permit"}).status_code == 200
        time.sleep(1.5)  # the gauge is set once a second
        assert open_connections(small) <= MOST
        assert refused(small, "connections") >= before + 5 * MOST


def test_connection_beyond_limit_is_refused(small: ServiceProcess) -> None:
    small.http.close()  # its connection would have one of the places
    small.http = type(small.http)(base_url=small.http.base_url, timeout=30)
    with crowd(small, MOST, WHOLE) as known:
        for each in known:
            assert each.recv(65536).startswith(b"HTTP/1.1 200 ")
        with connected(small) as late:
            assert error(rest(late)[0]) == (503, "overloaded")
        known[0].close()
        deadline = time.monotonic() + 4  # before uvicorn lets those go that are idle
        while True:
            assert time.monotonic() < deadline
            with connected(small, WHOLE) as again:
                if again.recv(65536).startswith(b"HTTP/1.1 200 "):
                    break


@pytest.mark.slow
@pytest.mark.parametrize("asked", [b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", WHOLE])
def test_clients_without_key_block_no_one(releases: Path, tmp_path: Path, asked: bytes) -> None:
    """Whole requests to an open path, or refused for want of a key, earn no place."""
    keys = write(tmp_path / "keys.json", [entry(APP, "app", "search", "metrics")])
    settings = {"TAUGATE_KEYS_FILE": str(keys), "TAUGATE_MAX_CONNECTIONS": str(MOST)}
    with ServiceProcess(releases, **settings) as service:
        service.ready()
        with crowd(service, MOST, asked) as strangers:
            for each in strangers[-10:]:
                assert each.recv(65536).startswith(b"HTTP/1.1 ")
            for number in range(20):
                with httpx.Client(base_url=service.http.base_url, headers=bearer(APP)) as client:
                    assert client.post("/search", json={"query": f"permit {number}"}).status_code == 200


def test_unread_replies_are_bounded() -> None:
    """The oldest connections are closed, and never the one that was just written to."""
    table, closed = ConnectionTable(Settings(releases=Path("nowhere")), Metrics()), []

    class Waiting:
        since, is_idle = 0.0, True

        def __init__(self, unread: int) -> None:
            self._unread = unread

        def unread(self) -> int:
            return self._unread

        def abort(self) -> None:
            closed.append(self)
            table.leave(self)

        def close_if_late(self, now: float) -> None:
            raise AssertionError

    connections = [Waiting(3 << 20) for _ in range(30)]
    for connection in connections:
        assert table.enter(connection)
        table.replied(connection)
        connections[5]._unread = 0  # its client has read it meanwhile
    left = [connection for connection in connections if connection not in closed]
    assert sum(connection.unread() for connection in left) <= 64 << 20
    assert closed == [connection for connection in connections[: len(closed) + 1] if connection.unread()]
    huge = Waiting(200 << 20)
    assert table.enter(huge)
    table.replied(huge)
    assert huge not in closed
    assert [connection for connection in connections if connection not in closed] == [connections[5]]


def test_workers_have_connection_limits(releases: Path) -> None:
    settings = {"TAUGATE_WORKERS": "2", "TAUGATE_MAX_CONNECTIONS": "20", "TAUGATE_RECEIVE_SECONDS": "1"}
    with ServiceProcess(releases, **settings) as service:
        service.ready()
        with crowd(service, 200, HALF) as half:
            # Over a connection of its own: the client's other one may be evicted while the request is on its way.
            reply = httpx.post(f"{service.http.base_url}/search", json={"query": "permit"}, timeout=30)
            assert reply.status_code == 200
            assert error(rest(half[-1])[0]) == (408, "request_timeout")


def test_open_file_limit_is_raised(releases: Path) -> None:
    """The soft limit is what a shell gives, 1,024 as a rule; here it is lowered first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 300), hard))
    try:
        service = ServiceProcess(releases)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with service:
        service.ready()
        limits = Path(f"/proc/{service.process.pid}/limits").read_text().splitlines()
        (line,) = (line for line in limits if line.startswith("Max open files"))
        assert line.split()[3] == str(hard)


@pytest.mark.parametrize(("settings", "level"), [({}, "INFO"), ({"max_connections": 10_000}, "WARNING")])
def test_low_open_file_limit_is_logged(
    settings: dict[str, int], level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The default is lowered on many machines, and nobody has to act on it."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8192, 8192))
    with caplog.at_level("INFO", "taugate.service.http.connection_table"):
        ConnectionTable(Settings(releases=Path("releases"), **settings), Metrics())
    (record,) = caplog.records
    assert record.levelname == level
    assert record.__dict__["fields"] == {"max_connections": 10_000, "using": 8192 - 256}
