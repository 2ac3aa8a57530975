"""Which failures the client retries, against servers that refuse, disconnect and recover."""

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import httpx2
import pytest

from taugate_client import (
    AsyncTaugateClient,
    ConnectionFailed,
    RateLimited,
    Refused,
    Retries,
    ServerFault,
    TaugateClient,
    TaugateError,
    TimedOut,
    Unavailable,
)
from tests.loopback import HOST, LoopbackTCPServer, free_port
from tests.pace import at_most
from tests.service_process import ServiceProcess

FAST = Retries(first_seconds=0.01)
GOOD = json.dumps({"status": "accepted"}).encode()
RESET, HALF, SILENT = "reset", "half", "silent"
Answer = str | tuple[int, dict[str, str], bytes]


def refusal(status: int, code: str = "overloaded", **headers: str) -> Answer:
    body = json.dumps({"error": {"code": code, "message": "later", "request_id": "r-1"}}).encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body


class Script(LoopbackTCPServer):
    """A server that gives its answers one after the other, and keeps the requests."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.times: list[float] = []

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def serve(self, client: socket.socket) -> None:
        with client:
            while request := receive(client):
                self.requests.append(request)
                self.times.append(time.monotonic())
                answer = self.answers.pop(0)
                if answer == RESET:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if answer == SILENT:
                    time.sleep(1)
                    return
                status, headers, body = (200, {}, GOOD) if isinstance(answer, str) else answer
                head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                reply = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body
                client.sendall(reply[:-5] if answer == HALF else reply)
                if answer == HALF:
                    return


def receive(connection: socket.socket) -> bytes:
    """Return one request, or reply, with its body; nothing at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        received = connection.recv(65536)
        if not received:
            return b""
        data += received
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def judge(url: str, retries: Retries = FAST, timeout: float = 10) -> str:
    with TaugateClient(url, retries=retries, timeout=timeout) as client:
        return client.feedback("q", "d", relevant=True).status


def judge_async(url: str, retries: Retries = FAST, timeout: float = 10) -> str:
    async def send() -> str:
        async with AsyncTaugateClient(url, retries=retries, timeout=timeout) as client:
            return (await client.feedback("q", "d", relevant=True)).status

    return asyncio.run(send())


BOTH = pytest.mark.parametrize("send", [judge, judge_async], ids=["sync", "async"])


@BOTH
@pytest.mark.parametrize(
    "failure",
    [RESET, HALF, refusal(408), refusal(429), refusal(429, "rate_limited"), refusal(503, "not_ready"), refusal(504)],
    ids=str,
)
def test_transient_failure_is_retried(send, failure: Answer) -> None:
    with Script(failure, failure, "good") as server:
        assert send(server.url) == "accepted"
    assert len(server.requests) == 3
    ids = {line for request in server.requests for line in request.split(b"\r\n") if line.startswith(b"X-Request-ID")}
    assert len(ids) == 1, "one call has one id, so that the log shows its attempts together"


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 431, 500, 501, 502])
def test_permanent_failure_is_not_retried(send, status: int) -> None:
    with Script(refusal(status, "some_code")) as server, pytest.raises(TaugateError) as failed:
        send(server.url)
    assert len(server.requests) == 1
    error = failed.value
    assert (error.status, error.code, error.message, error.request_id) == (status, "some_code", "later", "r-1")
    assert isinstance(error, ServerFault if status >= 500 else Refused)


@BOTH
def test_timeout_is_not_retried(send) -> None:
    with Script(SILENT) as server, pytest.raises(TimedOut) as late:
        send(server.url, timeout=0.2)
    assert len(server.requests) == 1
    assert late.value.request_id is not None
    assert isinstance(late.value.__cause__, httpx2.TimeoutException)


@BOTH
def test_retry_after_is_respected(send) -> None:
    with Script(refusal(429, "rate_limited", Retry_After="1"), "good") as server:
        assert send(server.url) == "accepted"
    first, second = server.times
    assert 1 <= second - first < 10


def test_long_retry_after_is_not_awaited() -> None:
    with Script(refusal(429, "rate_limited", Retry_After="60")) as server, pytest.raises(RateLimited) as limited:
        judge(server.url)
    assert limited.value.retry_after == 60
    assert len(server.requests) == 1


@pytest.mark.parametrize(("header", "seconds"), [("soon", None), ("-1", None), ("1.5", None), ("0", 0.0)])
def test_odd_retry_after_values(header: str, seconds: float | None) -> None:
    with Script(refusal(503, Retry_After=header)) as server, pytest.raises(Unavailable) as busy:
        judge(server.url, Retries(most=0))
    assert busy.value.retry_after == seconds


def test_retry_after_date_is_parsed() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    with Script(refusal(503, Retry_After=date)) as server, pytest.raises(Unavailable) as busy:
        judge(server.url, Retries(most=0))
    assert 85 < busy.value.retry_after <= 90


@BOTH
def test_client_gives_up_after_retries(send) -> None:
    with Script(*[RESET] * 3) as server, pytest.raises(ConnectionFailed):
        send(server.url, Retries(most=2, first_seconds=0.01))
    assert len(server.requests) == 3
    started = time.monotonic()
    with pytest.raises(ConnectionFailed):
        send(f"http://{HOST}:{free_port()}")
    assert time.monotonic() - started < at_most(10)


def test_pauses_grow_with_jitter() -> None:
    retries = Retries(most=20, first_seconds=1, longest_seconds=8)
    broken = ConnectionFailed("no reply")
    for attempt, longest in ((1, 1), (2, 2), (3, 4), (4, 8), (9, 8)):
        pauses = {retries.pause(broken, attempt) for _ in range(50)}
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
        assert len(pauses) > 40
    assert retries.pause(broken, 21) is None
    assert retries.pause(Unavailable("later", retry_after=3), 1) >= 3


class HalvingProxy(LoopbackTCPServer):
    """A proxy that hands a request on, and breaks the first reply off in the middle."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.target, self.replies, self.lock = port, 0, threading.Lock()

    def serve(self, client: socket.socket) -> None:
        with client, socket.create_connection((HOST, self.target)) as service:
            while request := receive(client):
                service.sendall(request)
                reply = receive(service)
                with self.lock:
                    self.replies += 1
                    first = self.replies == 1
                client.sendall(reply[: len(reply) // 2] if first else reply)
                if first:
                    return


@pytest.fixture
def judged(service: ServiceProcess) -> Iterator[tuple[str, str]]:
    reply = service.http.post("/search", json={"query": "How do I pay?"}).json()
    yield reply["query_id"], reply["results"][0]["id"]


def counted(http: httpx.Client) -> float:
    """Return how many judgements of relevant results the service has counted."""
    lines = http.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith('taugate_feedback_total{outcome="relevant"')
    )


def test_judgement_with_lost_reply_counts_once(service: ServiceProcess, judged: tuple[str, str]) -> None:
    before = counted(service.http)
    with HalvingProxy(service.port) as proxy, TaugateClient(f"http://{HOST}:{proxy.port}", retries=FAST) as client:
        assert client.feedback(*judged, relevant=True).status == "repeated"
    assert proxy.replies == 2
    assert counted(service.http) == before + 1
