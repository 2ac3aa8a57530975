"""Hostile traffic in a process of its own, so that the interpreter of the measuring program is not measured."""

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks.sampling import sampled
from benchmarks.serving.client import HOST
from benchmarks.serving.servers import Server

LOOK_SECONDS = 0.1


@contextmanager
def traffic(send: Callable[..., Any], *arguments: object) -> Iterator["Future[Any]"]:
    """Run `send` in a process of its own during the block, which waits for its end; `.result()` is what it returns."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool.submit(send, *arguments)


def sent(send: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 (whatever it returns)
    """Run `send` in a process of its own and return its result."""
    with traffic(send, *arguments) as sending:
        return sending.result()


@contextmanager
def peak(server: Server, most: int = 4 << 30) -> Iterator[list[int]]:
    """Sample the resident bytes of a service ten times a second, and kill it if it takes more than `most`."""

    def look() -> int:
        taken = server.resident_bytes
        if taken > most:
            server.kill()
        return taken

    with sampled(look, LOOK_SECONDS) as seen:
        yield seen


def grown(seen: list[int]) -> float:
    """Return the growth over the first sample in megabytes."""
    return (max(seen) - seen[0]) / 1e6


def connected(port: int, timeout: float = 10.0) -> socket.socket:
    """Open a connection to the service."""
    return socket.create_connection((HOST, port), timeout)


def request(method: str, path: str, body: bytes = b"", key: str | None = None, *more: str) -> bytes:
    """Build a whole request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", *([f"X-API-Key: {key}"] if key else []), *more]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def status(reply: bytes) -> int:
    """Parse the status of a reply, 0 if there is none."""
    return int(reply[9:12]) if reply.startswith(b"HTTP/1.1 ") and len(reply) > 12 else 0


def said(connection: socket.socket, seconds: float, enough: bytes = b"\r\n\r\n") -> bytes:
    """Read until the reply contains `enough`, the connection ends, or nothing came for so many seconds."""
    connection.settimeout(seconds)
    reply, deadline = b"", time.monotonic() + 10 * seconds
    while enough not in reply and time.monotonic() < deadline:
        try:
            part = connection.recv(1 << 16)
        except OSError:
            break
        if not part:
            break
        reply += part
    return reply
