"""TaugateClient and AsyncTaugateClient against the real service, and their models against its schema."""

import asyncio
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import httpx2
import pytest

from deploy.client_models import MODELS, OPENAPI, models
from taugate_client import (
    AsyncTaugateClient,
    ConnectionFailed,
    Forbidden,
    InvalidRequest,
    NotFound,
    RateLimited,
    Refused,
    Retries,
    ServerFault,
    TaugateClient,
    TaugateError,
    TimedOut,
    Unauthorized,
    Unavailable,
    UnexpectedReply,
)
from taugate_client.api import search, search_batch
from taugate_client.errors import error_type
from taugate_client.models import Interval, LiveDrift, Parts, ReleaseResponse
from taugate_client.reading import read
from tests.loopback import HOST, LoopbackTCPServer, free_port
from tests.pace import at_most
from tests.service_process import ServiceProcess

SCHEMAS = json.loads(OPENAPI.read_text(encoding="utf-8"))["components"]["schemas"]
QUESTION = "Who is liable for hidden defects?"


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[TaugateClient]:
    with TaugateClient(f"http://127.0.0.1:{service.port}") as client:
        yield client


def test_search_returns_service_reply(client: TaugateClient, service: ServiceProcess) -> None:
    reply = client.search(QUESTION, k=3)
    said = service.http.post("/search", json={"query": QUESTION, "k": 3}).json()
    assert [result.id for result in reply.results] == [result["id"] for result in said["results"]]
    assert reply.results[0].score == said["results"][0]["score"]
    assert reply.results[0].metadata == said["results"][0]["metadata"]
    assert reply.results[0].text == said["results"][0]["text"]
    assert (reply.threshold, reply.considered, reply.release) == (said["threshold"], 3, said["release"])
    assert reply.drift.alarm is False
    assert isinstance(client.search(QUESTION, explain=True).results[0].parts, Parts)


def test_reply_is_short_in_an_interpreter_and_loops_over_results(client: TaugateClient) -> None:
    reply = client.search(QUESTION, k=3, threshold=-2.0)
    assert len(reply) == 3 and [*reply] == [*reply.results]
    first = reply.results[0]
    assert repr(reply) == f"<SearchResponse: 3 of 3 results, threshold=-2.0, best_score={first.score}>"
    assert repr(first) == f"Result(rank=1, score={first.score}, id={first.id!r}, title={first.title!r})"
    nothing = client.search(QUESTION, threshold=2.0)
    assert not nothing and repr(nothing).endswith(", reason='all_below_threshold'>")
    assert len(repr(client.release())) < 120 < len(repr(client.release().manifest))
    assert repr(client.explain(QUESTION, first.id)).startswith("<ExplainResponse: It is returned")
    assert first.score == float(f"{first.score:.9g}"), "floats have the digits of float32"


def test_batch_takes_texts_and_requests(client: TaugateClient) -> None:
    first, second = client.search_batch([QUESTION, {"query": QUESTION, "k": 1, "include_text": False}])
    assert [result.id for result in second.results] == [first.results[0].id]
    assert first.results[0].text
    assert second.results[0].text is None


def test_feedback_explain_and_release_work(client: TaugateClient) -> None:
    reply = client.search(QUESTION)
    judged = reply.results[0].id
    assert client.feedback(reply.query_id, judged, relevant=True).status == "accepted"
    assert client.feedback(reply.query_id, judged, relevant=True).status == "repeated"
    other = reply.results[1].id
    assert client.feedback_on_query(QUESTION, other, relevant=True).status == "accepted"
    assert client.feedback_on_query(QUESTION, other, relevant=True).status == "repeated"
    with pytest.raises(InvalidRequest):
        client.feedback_on_query(QUESTION, "no such document", relevant=True)
    explained = client.explain(QUESTION, judged, k=1)
    assert (explained.kept, explained.rank, explained.rule) == (True, 1, "kept")
    release = client.release()
    assert (release.release, release.manifest["release_id"]) == (reply.release, reply.release)
    assert isinstance(release.drift, LiveDrift)


def test_release_parses_live_overlap() -> None:
    interval = {"mean": 0.5, "lower": 0.4, "upper": 0.6}
    live = {"alarm": True, "signals": ["roe"], "coe": None, "coe_expected": interval, "roe": interval}
    told = {"release": "r", "calibration": "calibrated", "shadow": None, "loaded_at": "-", "precision": "int8"}
    told |= {"manifest": {}}
    assert read(ReleaseResponse, told | {"drift": live}).drift == LiveDrift(
        True, ["roe"], None, Interval(**interval), Interval(**interval)
    )
    assert read(ReleaseResponse, told | {"drift": None}).drift is None
    assert read(ReleaseResponse, told).drift is None, "of a service from before it told"


def test_async_client_returns_same_results(service: ServiceProcess, client: TaugateClient) -> None:
    async def ask() -> None:
        async with AsyncTaugateClient(f"http://127.0.0.1:{service.port}") as asked:
            replies = await asyncio.gather(*(asked.search(QUESTION) for _ in range(4)))
            assert [reply.results for reply in replies] == [client.search(QUESTION).results] * 4
            (batch,) = await asked.search_batch([QUESTION])
            assert batch.results == replies[0].results
            judged = batch.results[1].id
            assert (await asked.feedback(batch.query_id, judged, relevant=False)).status == "accepted"
            other = batch.results[2].id
            assert (await asked.feedback_on_query(QUESTION, other, relevant=False)).status == "accepted"
            assert (await asked.explain(QUESTION, judged)).kept
            assert (await asked.release()).release == batch.release
            with pytest.raises(InvalidRequest):
                await asked.search("")

    asyncio.run(ask())


def test_client_reuses_connection(client: TaugateClient, service: ServiceProcess) -> None:
    for _ in range(5):
        client.search(QUESTION)
    pool = client._http._transport._pool  # type: ignore[attr-defined]
    assert len(pool.connections) == 1


def test_errors_carry_code_and_request_id(client: TaugateClient) -> None:
    with pytest.raises(InvalidRequest) as refused:
        client.search(QUESTION, filter={"colour": "red"})
    error = refused.value
    assert (error.status, error.code, error.retry_after) == (422, "invalid", None)
    assert "the fields are category" in error.message
    assert error.request_id and error.request_id in str(error)
    with pytest.raises(NotFound) as unknown:
        client.feedback("0" * 32, "x", relevant=True)
    assert unknown.value.code == "not_found"


def test_key_from_argument_or_environment(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "of-the-test"  # noqa: S105
    key = {"name": "app", "sha256": hashlib.sha256(secret.encode()).hexdigest(), "scopes": ["search"]}
    with ServiceProcess(releases, TAUGATE_KEYS=json.dumps([key])) as guarded:
        url = f"http://127.0.0.1:{guarded.ready().port}"
        with TaugateClient(url) as anonymous, pytest.raises(Unauthorized) as refused:
            anonymous.search(QUESTION)
        assert refused.value.code == "unauthorized"
        with TaugateClient(url, secret) as named:
            assert named.search(QUESTION).results
        monkeypatch.setenv("TAUGATE_KEY", secret)
        with TaugateClient(url) as silent:
            assert silent.search(QUESTION).results
            assert secret not in repr(silent)
            with pytest.raises(Forbidden, match="feedback"):
                silent.feedback("0" * 32, "x", relevant=True)
        with TaugateClient(url, "") as without, pytest.raises(Unauthorized):
            without.search(QUESTION)


@pytest.mark.parametrize(("arguments", "said"), [(("localhost:8000",), "http://"), (("http://h", "a\nb"), "key")])
def test_unsendable_url_or_key_is_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        TaugateClient(*arguments)
    assert "a\nb" not in str(refused.value)


def test_committed_models_are_those_of_openapi() -> None:
    assert MODELS.read_text(encoding="utf-8") == models(SCHEMAS), "the API changed; run: make openapi"


def reply_of(**changes: object) -> bytes:
    reply = {
        "results": [], "threshold": 0.2, "policy": "similarity", "calibrated": True, "calibration": "calibrated",
        "considered": 5, "dropped": 5, "best_score": 0.1, "reason": "all_below_threshold", "release": "r",
        "drift": {"alarm": False, "signals": []}, "query_id": "0" * 32,
    }  # fmt: skip
    return json.dumps(reply | changes).encode()


def test_unknown_reply_field_is_ignored() -> None:
    reply = search("q").read(200, {}, reply_of(later="yes", drift={"alarm": True, "signals": ["topk"], "since": 1}))
    assert reply.drift.alarm and reply.reason == "all_below_threshold"
    with pytest.raises(AttributeError):
        reply.reason = None  # type: ignore[misc]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"null", b"{}", reply_of(results={}), reply_of(results=[{}])])
def test_foreign_reply_raises_unexpected_reply(body: bytes) -> None:
    with pytest.raises(UnexpectedReply):
        search("q").read(200, {}, body)
    with pytest.raises(UnexpectedReply):
        search_batch(["q"]).read(200, {}, body)


def test_proxy_error_raises_taugate_error() -> None:
    with pytest.raises(TaugateError) as bad_gateway:
        search("q").read(502, {"x-request-id": "abc"}, b"<html>Bad gateway</html>")
    assert (bad_gateway.value.status, bad_gateway.value.code, bad_gateway.value.request_id) == (502, None, "abc")
    with pytest.raises(UnexpectedReply, match="307"):
        search("q").read(307, {}, b"")


def test_every_service_error_has_class() -> None:
    from taugate.service.errors import ApiError

    kinds = {kind: error_type(kind.status, kind.code) for kind in ApiError.__subclasses__()}
    assert all(issubclass(kind, TaugateError) and kind is not UnexpectedReply for kind in kinds.values())


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
