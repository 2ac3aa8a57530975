"""Every attack over the network, each at its own rate, to send beside other load."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.reliability.attacks.bodies import many_fields, stall
from benchmarks.reliability.attacks.framing import offer_upgrades, send_trailers
from benchmarks.reliability.attacks.replies import leave_unread
from benchmarks.reliability.attacks.steady_client import SteadyClient
from benchmarks.reliability.attacks.traffic import connected, request, said
from benchmarks.reliability.attacks.unauthenticated import flood, hold_connections
from benchmarks.serving.client import HOST

MAX_CONNECTIONS = 200  # TAUGATE_MAX_CONNECTIONS of the service that is attacked
NEW_QUERIES_PER_SECOND = 5.0  # of a key that asks nothing twice
Sending = tuple[Callable[..., Any], tuple[Any, ...]]


def network_attacks(keys: dict[str, str]) -> dict[str, Sending]:
    """List every attack by name: its function, which takes a port and seconds first, and its further arguments."""
    other = keys["other"]
    return {
        "endless trailers": (send_trailers, ()),
        "`Upgrade` on POST": (offer_upgrades, (other,)),
        "distinct queries of another key": (ask_new, (other, NEW_QUERIES_PER_SECOND)),
        "unauthenticated clients on all connections": (hold_connections, (MAX_CONNECTIONS,)),
        "1 MB of unknown fields, 1/s": (send_at, (many_fields(keys["slow"]), 1.0)),
        "64 stalled bodies of another key": (stall, (other,)),
        "600 unread replies": (leave_unread, (other, 600)),
        "32 readers of /openapi.json": (flood, (request("GET", "/openapi.json"), 32)),
        "16 unauthenticated clients, refused": (flood, (request("POST", "/search", b'{"query":"a"}'), 16)),
        "`Host: evil.example`, 10/s": (send_at, (_foreign_host(), 10.0)),
    }


def _foreign_host() -> bytes:
    return request("POST", "/search", b'{"query":"a"}').replace(HOST.encode(), b"evil.example", 1)


def ask_new(port: int, seconds: float, key: str, rate: float) -> int:
    """Ask queries with a key, none of them twice; returns how many."""
    with SteadyClient(port, key, rate, known=False) as asking:
        time.sleep(seconds)
    return len(asking.asked)


def send_at(port: int, seconds: float, asked: bytes, rate: float) -> int:
    """Send one request at a time, so many a second at most; returns how many were sent."""
    began = time.monotonic()
    for number in itertools.count():
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        if time.monotonic() > began + seconds:
            return number
        try:
            with connected(port) as client:
                client.sendall(asked)
                said(client, 5.0)
        except OSError:
            continue
    return 0
