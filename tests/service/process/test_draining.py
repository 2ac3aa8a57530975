"""No client loses a request between SIGTERM and the end of the process."""

import ctypes
import os
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from taugate.service.server import refuse_handshakes
from tests.pace import at_most
from tests.prometheus_process import until
from tests.restarts.keeping import KeepingClients
from tests.service.process.wire import HALF, HEAD, WHOLE, answer, connected, rest
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

_PROBE = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
_CLOSES = b"\r\nconnection: close\r\n"


@pytest.fixture(params=["1", pytest.param("2", marks=pytest.mark.exhaustive)])
def workers(request: pytest.FixtureRequest) -> str:
    """Number of worker processes, as TAUGATE_WORKERS has it."""
    number: str = request.param
    return number


def _ready(service: ServiceProcess, workers: str) -> None:
    """Wait until every process has a release."""
    service.ready()
    until(lambda: service.log().count('"ready"') >= int(workers))


def _terminate(service: ServiceProcess, workers: str = "1") -> float:
    """Send SIGTERM, and return when every process has received it."""
    service.process.send_signal(signal.SIGTERM)
    until(lambda: service.log().count('"draining"') >= int(workers))
    return time.monotonic()


def test_sigterm_fails_readiness_but_serves(releases: Path, workers: str) -> None:
    with ServiceProcess(releases, TAUGATE_DRAIN_SECONDS="20", TAUGATE_WORKERS=workers) as service:
        _ready(service, workers)
        with ExitStack() as stack:
            kept = [stack.enter_context(connected(service)) for _ in range(6)]
            assert not any(_CLOSES in answer(connection) for connection in kept)
            _terminate(service, workers)
            with connected(service) as probe:
                reply = answer(probe, _PROBE)
                assert reply.startswith(b"HTTP/1.1 503 ")
                assert b'"not_ready"' in reply
                assert _CLOSES in reply
                assert rest(probe)[0] == b""
            for connection in [*kept, stack.enter_context(connected(service))]:
                reply = answer(connection)
                assert reply.startswith(b"HTTP/1.1 200 ")
                assert _CLOSES in reply
                ended, seconds = rest(connection)
                assert ended == b""
                assert seconds < 10, "the service closes after a reply that says so"
        assert service.stop(signal.SIGINT)[0] == 0


def test_drain_ends_early_without_connections(releases: Path, workers: str) -> None:
    with ServiceProcess(releases, TAUGATE_DRAIN_SECONDS="60", TAUGATE_WORKERS=workers) as service:
        _ready(service, workers)
        service.http.close()
        began = _terminate(service, workers)
        time.sleep(3)
        with connected(service) as late:  # a proxy that has not noticed yet
            assert answer(late).startswith(b"HTTP/1.1 200 ")
        assert service.process.wait(60) == 0
        assert 7 < time.monotonic() - began < 50
        assert "Traceback" not in service.log()


def test_idle_connection_closes_after_drain(releases: Path, workers: str) -> None:
    with ServiceProcess(releases, TAUGATE_DRAIN_SECONDS="3", TAUGATE_WORKERS=workers) as service:
        _ready(service, workers)
        with connected(service) as idle:
            answer(idle)
            signalled = time.monotonic()
            began = _terminate(service, workers)
            assert rest(idle)[0] == b""
            assert time.monotonic() - signalled > 2.9
            idle.sendall(WHOLE)  # discarded, and not reset
            time.sleep(0.1)
            idle.sendall(WHOLE)
        assert service.process.wait(60) == 0
        assert time.monotonic() - began < at_most(10)


def test_request_begun_before_end_is_answered(releases: Path) -> None:
    """The drain period is over while the client still sends the head, or the body."""
    with ServiceProcess(releases, TAUGATE_DRAIN_SECONDS="2") as service:
        service.ready()
        with connected(service) as head, connected(service) as body:
            answer(head)
            answer(body)
            _terminate(service)
            body.sendall(WHOLE[:-5])
            head.sendall(WHOLE[:20])
            time.sleep(2.5)
            assert answer(head, WHOLE[20:]).startswith(b"HTTP/1.1 200 ")
            assert answer(body, WHOLE[-5:]).startswith(b"HTTP/1.1 200 ")
        assert service.process.wait(60) == 0


def test_draining_service_answers_whole_requests(releases: Path) -> None:
    """A refusal of a body that is too long comes before the body has: a client that reads late must not lose it."""
    with ServiceProcess(releases, TAUGATE_DRAIN_SECONDS="20") as service:
        service.ready()
        with connected(service) as pipelining, connected(service) as refused:
            answer(pipelining)
            _terminate(service)
            refused.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n" + b" " * 200_000)
            assert scrape(service)["taugate_connections{}"] >= 0
            pipelining.sendall(3 * WHOLE)
            replies = rest(pipelining)[0].split(b"HTTP/1.1 ")[1:]
            assert [reply[:4] for reply in replies] == [b"200 "] * 3
            assert [_CLOSES in reply for reply in replies] == [False, False, True]
            reply, _ = rest(refused)
            assert reply.startswith(b"HTTP/1.1 413 ")
            assert reply.endswith(b"}")


def test_second_sigterm_does_not_end_drain(releases: Path, workers: str) -> None:
    with ServiceProcess(releases, TAUGATE_DRAIN_SECONDS="20", TAUGATE_WORKERS=workers) as service:
        _ready(service, workers)
        with connected(service) as kept:
            answer(kept)
            _terminate(service, workers)
            service.process.send_signal(signal.SIGTERM)
            time.sleep(1)
            assert answer(kept).startswith(b"HTTP/1.1 200 ")
            assert service.process.poll() is None


@pytest.mark.parametrize("first", [None, signal.SIGTERM], ids=["alone", "after SIGTERM"])
def test_sigint_ends_drain_within_seconds(releases: Path, workers: str, first: signal.Signals | None) -> None:
    with ServiceProcess(releases, TAUGATE_DRAIN_SECONDS="60", TAUGATE_WORKERS=workers) as service:
        _ready(service, workers)
        with connected(service) as idle, connected(service, HALF[:-10]) as busy:
            answer(idle)
            if first is not None:
                _terminate(service, workers)
            time.sleep(0.3)
            began = time.monotonic()
            service.process.send_signal(signal.SIGINT)
            assert rest(idle)[1] < 30
            busy.close()
        assert service.process.wait(60) == 0
        assert time.monotonic() - began < 40
        assert "Traceback" not in service.log()


def test_ctrl_c_ends_workers_within_seconds(releases: Path) -> None:
    """A terminal sends SIGINT to every process of the group, and the supervisor passes it on as well."""
    with ServiceProcess(releases, forked=False, TAUGATE_DRAIN_SECONDS="60", TAUGATE_WORKERS="2") as service:
        _ready(service, "2")
        children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
        group = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(group) == 2
        began = time.monotonic()
        for pid in (*group, service.process.pid):
            os.kill(pid, signal.SIGINT)
        assert service.process.wait(60) == 0
        assert time.monotonic() - began < 40
        assert "Traceback" not in service.log()


@pytest.mark.exhaustive
def test_one_stopped_worker_refuses_no_client(releases: Path) -> None:
    """The listening socket is that of the others as well."""
    with ServiceProcess(releases, forked=False, TAUGATE_DRAIN_SECONDS="1", TAUGATE_WORKERS="2") as service:
        _ready(service, "2")
        children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
        worker = next(int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(worker, signal.SIGTERM)
        deadline = time.monotonic() + 120
        while service.log().count('"ready"') < 3:
            assert time.monotonic() < deadline
            reply = httpx.post(f"http://127.0.0.1:{service.port}/search", json={"query": "permit"}, timeout=5)
            assert reply.status_code == 200
            time.sleep(0.02)
        code, log = service.stop(signal.SIGINT)
        assert code == 0
        assert "Traceback" not in log


def _permits_socket_filters() -> bool:
    """Return False in containers whose seccomp profile forbids them, and on other systems than Linux."""
    accept_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0xFFFFFFFF))
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", 1, ctypes.addressof(accept_all)))
        except PermissionError:
            return False
    return sys.platform == "linux"


@pytest.mark.skipif(not _permits_socket_filters(), reason="this system forbids socket filters")
def test_refused_handshakes_spare_established_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address) as waiting:  # established, and not accepted yet
            waiting.sendall(b"request")
            assert refuse_handshakes(listener)
            outcome: list[str] = []

            def connect_late() -> None:
                try:
                    socket.create_connection(address, timeout=60).close()
                except OSError as error:
                    outcome.append(type(error).__name__)

            late = threading.Thread(target=connect_late)
            late.start()
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.recv(100) == b"request"
                time.sleep(0.2)
                listener.close()
                waiting.sendall(b"another")
                assert accepted.recv(100) == b"another"
            late.join()
        assert outcome == ["ConnectionRefusedError"]


@pytest.mark.parametrize(
    ("library", "workers", "restarts"),
    [
        ("httpx", "1", 1),
        pytest.param("httpx", "1", 2, marks=pytest.mark.exhaustive),
        pytest.param("urllib3", "2", 2, marks=pytest.mark.exhaustive),
    ],
)
def test_rolling_restarts_lose_no_request(releases: Path, workers: str, library: str, restarts: int) -> None:
    """The long version, with Go and nginx, is tests/restarts."""
    settings = {"TAUGATE_DRAIN_SECONDS": "2", "TAUGATE_WORKERS": workers}
    with ExitStack() as stack:
        replicas = [stack.enter_context(ServiceProcess(releases, **settings)) for _ in range(2)]
        for replica in replicas:
            _ready(replica, workers)
        clients = KeepingClients(library, 8, [f"127.0.0.1:{replica.port}" for replica in replicas])
        clients.start()
        try:
            for number in range(restarts):
                time.sleep(1)
                assert replicas[number].stop()[0] == 0
                port = replicas[number].port
                replicas[number] = stack.enter_context(ServiceProcess(releases, port, **settings))
                _ready(replicas[number], workers)
            time.sleep(1)
        finally:
            outcomes = clients.stop()
    assert (outcomes["lost"], outcomes["other"], outcomes["unready"]) == ([], [], 0)
    assert clients.answered > 100 * restarts
