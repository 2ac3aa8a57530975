"""Many open connections do not lock other clients out."""

import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from taugate.service.http.connection_table import _MAX_UNREAD_BYTES, ConnectionTable
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings
from tests.pace import at_most
from tests.service.access.files import APP, OLD, bearer, entry, write
from tests.service.process.wire import HALF, HEAD, WHOLE, answer, connected, error, refused, rest
from tests.service_process import ServiceProcess

MAX_CONNECTIONS = 50


@pytest.fixture(scope="module")
def small(releases: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases, TAUGATE_MAX_CONNECTIONS=str(MAX_CONNECTIONS)) as process:
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
    with crowd(small, 6 * MAX_CONNECTIONS, sent):
        with connected(small, WHOLE) as one, connected(small, WHOLE) as other:
            assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
            assert other.recv(65536).startswith(b"HTTP/1.1 200 ")
        for _ in range(20):
            assert small.http.post("/search", json={"query": "permit"}).status_code == 200
        time.sleep(1.5)  # the gauge is set once a second
        assert open_connections(small) <= MAX_CONNECTIONS
        assert refused(small, "connections") >= before + 5 * MAX_CONNECTIONS


def test_connection_beyond_limit_is_refused(small: ServiceProcess) -> None:
    small.http.close()  # its connection would have one of the places
    small.http = type(small.http)(base_url=small.http.base_url, timeout=30)
    with crowd(small, MAX_CONNECTIONS, WHOLE) as authenticated:
        for client in authenticated:
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        with connected(small) as late:
            assert error(rest(late)[0]) == (503, "overloaded")
        authenticated[0].close()
        deadline = time.monotonic() + at_most(4)  # before uvicorn lets those go that are idle
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
    settings = {"TAUGATE_KEYS_FILE": str(keys), "TAUGATE_MAX_CONNECTIONS": str(MAX_CONNECTIONS)}
    with ServiceProcess(releases, **settings) as service:
        service.ready()
        with crowd(service, MAX_CONNECTIONS, asked) as unauthenticated:
            for client in unauthenticated[-10:]:
                assert client.recv(65536).startswith(b"HTTP/1.1 ")
            for number in range(20):
                with httpx.Client(base_url=service.http.base_url, headers=bearer(APP)) as http:
                    assert http.post("/search", json={"query": f"permit {number}"}).status_code == 200


@pytest.mark.slow
def test_one_key_blocks_no_other(releases: Path, tmp_path: Path) -> None:
    """A key on all connections, each with an authorized request a moment ago, leaves half of them to other clients."""
    keys = write(tmp_path / "keys.json", [entry(APP, "app", "search"), entry(OLD, "crowd", "search")])
    settings = {"TAUGATE_KEYS_FILE": str(keys), "TAUGATE_MAX_CONNECTIONS": str(MAX_CONNECTIONS)}
    authorized = WHOLE.replace(b"\r\n", f"\r\nAuthorization: Bearer {OLD}\r\n".encode(), 1)
    with ServiceProcess(releases, **settings) as service:
        service.ready()
        with crowd(service, 2 * MAX_CONNECTIONS, authorized) as clients:
            kept = [client.recv(65536) for client in clients[: MAX_CONNECTIONS // 2]]
            assert all(reply.startswith(b"HTTP/1.1 200 ") for reply in kept)
            for number in range(20):
                with httpx.Client(base_url=service.http.base_url, headers=bearer(APP)) as http:
                    assert http.post("/search", json={"query": f"permit {number}"}).status_code == 200


@pytest.mark.slow
def test_unread_replies_are_bounded(releases: Path) -> None:
    queries = [{"query": f"marmalade {number}", "k": 100, "threshold": -2.0} for number in range(64)]
    body = json.dumps({"queries": queries}).encode()
    batch = HEAD.replace(b"/search", b"/search/batch") + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with ServiceProcess(releases, TAUGATE_RECEIVE_SECONDS="60") as service:
        service.ready()
        with connected(service) as client:
            size = len(answer(client, batch))
        fitting = _MAX_UNREAD_BYTES // size
        with crowd(service, 2 * fitting, b"") as clients:
            for client in clients:
                client.sendall(batch)
                client.recv(1)  # the reply is written, and most of it waits in the service
            closed = int(refused(service, "unread"))
            assert 0 < closed <= fitting
            received = [len(rest(client, size - 1)[0]) for client in clients]
    assert all(length < size - 1 for length in received[:closed])
    assert received[closed:] == [size - 1] * (len(clients) - closed)


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
    few = 100 + len([*Path("/proc/self/fd").iterdir()])  # the tests before may have left files open
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, few), hard))
    try:
        service = ServiceProcess(releases, forked=False)
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
    """The default exceeds the limit of many machines and is meant to be lowered; a number that was set is not."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8192, 8192))
    with caplog.at_level("INFO", "taugate.service.http.connection_table"):
        ConnectionTable(Settings(releases=Path("releases"), **settings), Metrics())
    (record,) = caplog.records
    assert record.levelname == level
    assert record.__dict__["fields"] == {"max_connections": 10_000, "using": 8192 - 256}
