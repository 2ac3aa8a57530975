"""Raw bytes to and from a service, as a client sends them that ignores the rules."""

import json
import math
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.service_process import ServiceProcess

HEAD = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = json.dumps({"query": "marmalade"}).encode()
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
HALF = HEAD + b"Content-Length: 1000\r\n\r\n" + BODY


@contextmanager
def connected(service: ServiceProcess, sent: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        connection.sendall(sent)
        yield connection


def answer(connection: socket.socket, request: bytes = WHOLE) -> bytes:
    """Send a request and read its whole reply, whose head says how long it is; b"" if the service closes instead."""
    connection.sendall(request)
    received = b""
    while part := connection.recv(65536):
        received += part
        head, separator, body = received.partition(b"\r\n\r\n")
        if separator and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            break
    return received


def rest(connection: socket.socket, size: float = math.inf) -> tuple[bytes, float]:
    """Return what is received until the service closes, or `size` bytes, and how many seconds that takes."""
    began, received = time.perf_counter(), b""
    try:
        while len(received) < size and (part := connection.recv(65536)):
            received += part
    except ConnectionResetError:
        pass
    return received, time.perf_counter() - began


def error(reply: bytes) -> tuple[int, str]:
    """Status and code of an error; what all of them have is looked at here."""
    head, _, body = reply.partition(b"\r\n\r\n")
    headers = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"connection"] == b"close"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert b"server" not in headers
    said = json.loads(body)["error"]
    assert said["request_id"].encode() == headers[b"x-request-id"]
    return int(head.split()[1]), said["code"]


def refused(service: ServiceProcess, reason: str) -> float:
    text = httpx.get(f"http://127.0.0.1:{service.port}/metrics").text  # no connection that was idle
    return float(text.partition(f'taugate_refused_total{{reason="{reason}"}} ')[2].split()[0])
