"""Slow and silent clients are closed at the deadline; slow work of the service is not."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pace import at_most
from tests.service.process.wire import BODY, HALF, HEAD, WHOLE, connected, error, refused, rest
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
