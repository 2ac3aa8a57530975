"""Connections: slow and silent clients, idle connections, and many at once."""

import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from taugate.service.http.connection_table import _MAX_UNREAD_BYTES, _MIN_IDLE_SECONDS, ConnectionTable
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings
from tests.pace import at_most
from tests.service.access.files import APP, OLD, bearer, entry, write
from tests.service.process.wire import BODY, HALF, HEAD, WHOLE, answer, connected, error, refused, rest
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

SECONDS = 1.0


@pytest.fixture(scope="module")
def hasty(releases: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases, TAUGATE_RECEIVE_SECONDS=str(SECONDS)) as process:
        yield process.ready()


def on_time(seconds: float) -> bool:
    """Not before the deadline, and not long after it, since a moment before the connection; the machine may be busy."""
    return SECONDS - 0.1 < seconds < SECONDS + at_most(4)


def test_silent_connection_is_closed(hasty: ServiceProcess) -> None:
    began = time.perf_counter()
    with connected(hasty) as connection:
        assert rest(connection)[0] == b""
    assert on_time(time.perf_counter() - began)


@pytest.mark.parametrize("sent", [HEAD, HALF, b"P", WHOLE[:-1], HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"])
@pytest.mark.slow
def test_partial_request_is_408(hasty: ServiceProcess, sent: bytes) -> None:
    before, began = refused(hasty, "receive_timeout"), time.perf_counter()
    with connected(hasty, sent) as connection:
        assert error(rest(connection)[0]) == (408, "request_timeout")
    assert on_time(time.perf_counter() - began)
    assert refused(hasty, "receive_timeout") == before + 1


@pytest.mark.parametrize(("first", "drop"), [(b"GET /", b"a"), (HEAD, b"X-A: b\r\n"), (HALF, b" ")])
@pytest.mark.slow
def test_trickling_request_does_not_extend_deadline(hasty: ServiceProcess, first: bytes, drop: bytes) -> None:
    began = time.perf_counter()
    with connected(hasty, first) as connection:
        connection.settimeout(0.1)
        while time.perf_counter() - began < SECONDS + 4:
            try:
                connection.sendall(drop)
                connection.recv(65536)
                break  # a reply, or the end
            except TimeoutError:
                continue
            except OSError:
                break
    assert on_time(time.perf_counter() - began)


def test_unwanted_body_is_not_awaited(hasty: ServiceProcess) -> None:
    """The reply comes before the body; what is left of that is waited for no longer."""
    sent = b"POST /admin/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    began = time.perf_counter()
    with connected(hasty, sent) as connection:
        reply, _ = rest(connection)
    assert reply.startswith(b"HTTP/1.1 403 ")
    assert reply.count(b"HTTP/1.1") == 1
    assert on_time(time.perf_counter() - began)


def test_request_in_two_parts_is_answered(hasty: ServiceProcess) -> None:
    for cut in (3, len(HEAD), len(WHOLE) - 1):
        with connected(hasty, WHOLE[:cut]) as connection:
            time.sleep(0.3)
            connection.sendall(WHOLE[cut:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_deadline_applies_per_request(hasty: ServiceProcess) -> None:
    with connected(hasty) as connection:
        for _ in range(5):
            time.sleep(0.4)
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            reply = b""
            while not reply.endswith(b"}"):
                reply += connection.recv(65536)
            assert reply.startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_slow_reply_is_not_limited(releases: Path) -> None:
    bodies = [json.dumps({"queries": [f"marmalade {row} " * (10 + each) for each in range(64)]}) for row in range(8)]
    settings = {"TAUGATE_QUEUE_LIMIT": "1024", "TAUGATE_DEADLINE_MS": "60000", "TAUGATE_RECEIVE_SECONDS": "0.2"}
    settings["TAUGATE_KEEP_ALIVE_SECONDS"] = "2"  # after which the service ends what is read to the end here
    with ServiceProcess(releases, **settings) as service:
        service.ready()
        sent = [
            b"POST /search/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
            + b"%d\r\n\r\n%b" % (len(body), body.encode())
            for body in bodies
        ]
        began = time.perf_counter()
        with connected(service, sent[0]) as one, connected(service, b"".join(sent[1:])) as pipelined:
            assert one.recv(100).startswith(b"HTTP/1.1 200 ")
            # Read all the time: only the service makes anybody wait.
            reply, _ = rest(pipelined)
            assert reply.count(b"HTTP/1.1 200 ") == len(sent) - 1
        assert time.perf_counter() - began > 0.2, "the work was too little to show anything"


def test_client_not_reading_is_closed(hasty: ServiceProcess) -> None:
    before = refused(hasty, "unread")
    many = json.dumps({"queries": [{"query": "marmalade", "k": 100, "threshold": -2.0}] * 64}).encode()
    sent = HEAD.replace(b"/search", b"/search/batch") + b"Content-Length: %d\r\n\r\n" % len(many) + many
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", hasty.port))
        connection.sendall(sent * 5)
        deadline = time.monotonic() + 60
        while refused(hasty, "unread") == before:
            assert time.monotonic() < deadline
            assert hasty.http.post("/search", json={"query": "marmalade"}).status_code == 200
            time.sleep(0.1)


@pytest.mark.slow
def test_sigterm_limits_wait_for_body(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_RECEIVE_SECONDS=str(SECONDS)) as service:
        service.ready()
        with connected(service, HALF) as connection:
            time.sleep(0.2)
            began = time.perf_counter()
            ending = threading.Thread(target=service.stop)
            ending.start()
            reply, _ = rest(connection)
            connection.close()
            ending.join()
            assert error(reply) == (408, "request_timeout")
        assert time.perf_counter() - began < at_most(SECONDS + 5)
        code, log = service.stop()
    assert code == 0
    assert "Traceback" not in log
    assert BODY.decode() not in log
    assert [json.loads(line)["status"] for line in log.splitlines() if '"/search"' in line] == [499]


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


MAX_CONNECTIONS = 50


@pytest.fixture(scope="module")
def small(releases: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases, TAUGATE_MAX_CONNECTIONS=str(MAX_CONNECTIONS)) as process:
        yield process.ready()


@contextmanager
def crowd(service: ServiceProcess, number: int, sent: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connected(service, sent)) for _ in range(number)]


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
        assert scrape(small)["taugate_connections{}"] <= MAX_CONNECTIONS
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
