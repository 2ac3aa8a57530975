"""Every attack that comes over the network, at its own rate, as something to send beside other load."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.reliability.attacks.bodies import many_fields, stall
from benchmarks.reliability.attacks.framing import offer_upgrades, send_trailers
from benchmarks.reliability.attacks.replies import leave_unread
from benchmarks.reliability.attacks.strangers import flood, keep_places
from benchmarks.reliability.attacks.traffic import connected, request, said
from benchmarks.reliability.attacks.victim import Victim
from benchmarks.serving.client import HOST

PLACES = 200  # TAUGATE_MAX_CONNECTIONS of the service that is attacked
NEW_QUERIES_PER_SECOND = 5.0  # of a key that asks nothing twice
Sending = tuple[Callable[..., Any], tuple[Any, ...]]


def parade(keys: dict[str, str]) -> dict[str, Sending]:
    """List every attack by name: its function, which takes a port and seconds first, and its further arguments."""
    rival = keys["rival"]
    return {
        "endless trailers": (send_trailers, ()),
        "`Upgrade` on POST": (offer_upgrades, (rival,)),
        "distinct queries of another key": (ask_new, (rival, NEW_QUERIES_PER_SECOND)),
        "strangers in all places": (keep_places, (PLACES,)),
        "1 MB of unknown fields, 1/s": (send_at, (many_fields(keys["slow"]), 1.0)),
        "64 stalled bodies of another key": (stall, (rival,)),
        "600 unread replies": (leave_unread, (rival, 600)),
        "32 readers of /openapi.json": (flood, (request("GET", "/openapi.json"), 32)),
        "16 strangers who are refused": (flood, (request("POST", "/search", b'{"query":"a"}'), 16)),
        "`Host: evil.example`, 10/s": (send_at, (_evil(), 10.0)),
    }


def _evil() -> bytes:
    return request("POST", "/search", b'{"query":"a"}').replace(HOST.encode(), b"evil.example", 1)


def ask_new(port: int, seconds: float, key: str, rate: float) -> int:
    """Queries asked by a key, none of them twice."""
    with Victim(port, key, rate, known=False) as asking:
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
