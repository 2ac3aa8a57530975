"""Clients that abort, flood or send nonsense: each gets one clear 4xx, and the service continues."""

import json
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.faults.load import Load, answers
from tests.prometheus_process import until
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

CONNECTIONS = 400
LONG = json.dumps({"queries": [{"query": f"permit {n}", "k": 100, "threshold": -2} for n in range(64)]}).encode()
SHORT = b'{"query": "permit"}'
# Body, status and code.
HOSTILE = {
    "100,000 arrays": (b"[" * 100_000, 400, "bad_json"),
    "100,000 objects": (b'{"query":' * 100_000, 400, "bad_json"),
    "100,000 arrays in a filter": (b'{"query":"a","filter":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "bad_json"),
    "a number of 100,000 digits": (b'{"query":"a","k":' + b"9" * 100_000 + b"}", 400, "bad_json"),
    "an exponent": (b'{"query":"a","threshold":1e999999999}', 422, "invalid"),
    "a negative exponent for k": (b'{"query":"a","k":1e-999999999}', 422, "invalid"),
    "digits without end in a filter": (b'{"query":"a","filter":{"x":' + b"1" * 50_000 + b"}}", 400, "bad_json"),
    "invalid UTF-8": (b'{"query":"\xff\xfe"}', 400, "bad_json"),
    "UTF-8 longer than needed": (b'{"query":"\xc0\x80"}', 400, "bad_json"),
    "surrogates in UTF-8": (b'{"query":"\xed\xa0\x80"}', 400, "bad_json"),
    "a NUL byte": (b'{"query":"a\x00b"}', 400, "bad_json"),
    "NUL bytes alone": (bytes(1000), 400, "bad_json"),
    "a byte order mark": (b'\xef\xbb\xbf{"query":"a"}', 400, "bad_json"),
    "two equal names, the last wrong": (b'{"query":"a","query":7}', 422, "invalid"),
    "names without end": (b'{"query":"a",' + b",".join(b'"%d":1' % n for n in range(50_000)) + b"}", 422, "invalid"),
}


@pytest.fixture(scope="module")
def service(releases: Path) -> Iterator[ServiceProcess]:
    # A queue for the batches of all aborting clients; another test covers full queues.
    limits = {"TAUGATE_QUEUE_LIMIT": "10000", "TAUGATE_MAX_BODY_BYTES": "1048576"}
    limits["TAUGATE_DEADLINE_MS"] = "120000"  # on a busy machine those batches take longer than the default
    with ServiceProcess(releases, TAUGATE_CACHE_BYTES="0", **limits) as process:
        yield process.ready()
        code, log = process.stop()
    assert code == 0
    assert "Traceback" not in log
    assert '"status":500' not in log.replace(" ", "")


def head(length: int, path: str = "/search") -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        "",
        "",
    )
    return "\r\n".join(lines).encode()


def connect(service: ServiceProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), 30)


@pytest.mark.parametrize(("body", "status", "code"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_body_gets_one_error(service: ServiceProcess, body: bytes, status: int, code: str) -> None:
    for path in ("/search", "/search/batch", "/feedback"):
        reply = service.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code in ({status} if path == "/search" else {400, 413, 422})
        assert path != "/search" or reply.json()["error"]["code"] == code
        assert len(reply.content) < 2000


def test_last_of_duplicate_fields_counts(service: ServiceProcess) -> None:
    """As in nearly every JSON parser; a filter in front of the service has to parse requests in the same way."""
    reply = service.http.post(
        "/search", content=b'{"query":"a","k":1,"k":2}', headers={"Content-Type": "application/json"}
    )
    assert (reply.status_code, reply.json()["considered"]) == (200, 2)
    assert service.http.post("/search", json={"query": "a\0b"}).status_code == 200


@pytest.mark.parametrize(
    "line", [b"GET /\x00 HTTP/1.1", b"GET /release\xff\xfe HTTP/1.1", b"\x00\x00\x00", b"\x16\x03\x01"]
)
def test_invalid_request_line_is_refused(service: ServiceProcess, line: bytes) -> None:
    with connect(service) as client:
        client.sendall(line + b"\r\nHost: localhost\r\n\r\n")
        assert client.recv(12) in {b"HTTP/1.1 400", b"HTTP/1.1 404"}


@pytest.mark.slow
def test_clients_abort_connections(service: ServiceProcess, rng: random.Random, rounds: int) -> None:
    """Connections end in the head, in the body, before and within the reply, by a reset or in order."""
    with Load(service.port, answers(service)) as load:
        for _ in range(100 * rounds):
            path, body = rng.choice([("/search", SHORT), ("/search/batch", LONG)])
            request = head(len(body), path) + body
            with connect(service) as client:
                if rng.random() < 0.5:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(request if rng.random() < 0.5 else request[: rng.randrange(len(request))])
                if rng.random() < 0.3:
                    client.settimeout(0.2)
                    with suppress(TimeoutError):
                        client.recv(100)
        load.wait_for_answers()
    assert not load.incorrect
    assert not load.broken
    until(lambda: scrape(service)["taugate_queue_depth{}"] == 0)
    until(lambda: scrape(service)["taugate_connections{}"] <= 2)


@pytest.mark.slow
def test_hundreds_of_open_connections_are_served(service: ServiceProcess) -> None:
    """Some of which have begun to ask."""
    with ExitStack() as open_ones:
        for number in range(CONNECTIONS):
            client = open_ones.enter_context(connect(service))
            client.sendall((head(1000) + b"{")[: number % 120])
        until(lambda: scrape(service)["taugate_connections{}"] >= CONNECTIONS)
        with Load(service.port, answers(service)) as load:
            load.wait_for_answers(50)
        assert not load.incorrect
        assert not load.broken
