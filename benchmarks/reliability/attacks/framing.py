"""Attacks by framing: endless trailers, keys in trailers, upgrades, foreign hosts."""

import contextlib
import time

from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from benchmarks.reliability.attacks.traffic import connected, grown, peak, request, said, sent, status

TRAILER_BYTES = 25_000_000  # enough for 525 MB if each line is kept as Python objects
_GROWTH = 32.0  # MB: a head and a body of the largest size, many times over
_REQUESTS = 100
_QUERY = b'{"query":"Who pays for the repair of the roof?"}'


def trailers(setting: AttackSetting) -> AttackResult:
    """Send a chunked request whose trailers do not end, on one connection without a key."""
    with setting.service() as server, peak(server) as seen:
        taken = sent(send_trailers, server.port, 60.0)
        time.sleep(0.5)
    measured = f"{taken / 1e6:.1f} MB were taken, memory + {grown(seen):.0f} MB"
    return AttackResult("endless trailers", measured, f"+ {_GROWTH:g} MB", grown(seen) <= _GROWTH)


def send_trailers(port: int, seconds: float, most: int = TRAILER_BYTES) -> int:
    """Send trailers until the service hangs up, and return how many bytes it took."""
    head = b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    lines = b"a:b\r\n" * 8192  # the shorter a line is, the more objects there are of it
    written, ends = 0, time.monotonic() + seconds
    with connected(port) as client:
        try:
            client.sendall(head + b"2\r\n{}\r\n0\r\n")
            while written < most and time.monotonic() < ends:
                client.sendall(lines)
                written += len(lines)
        except OSError:
            pass
    return written


def key_in_trailer(setting: AttackSetting) -> AttackResult:
    """An administrator's route, asked with a key that may search; the administrator's key is in a trailer."""
    with setting.service() as server:
        answers = []
        for key in (None, setting.keys["good"]):
            own = [f"X-API-Key: {key}"] if key else []
            head = ["POST /admin/reload HTTP/1.1", "Host: 127.0.0.1", *own, "Transfer-Encoding: chunked", "", ""]
            trailer = f"0\r\nX-API-Key: {setting.keys['admin']}\r\n\r\n"
            with connected(server.port) as client:
                client.sendall(("\r\n".join(head) + trailer).encode())
                answers.append(status(said(client, 2.0)))
    measured = f"without a key: {answers[0]}, with a search key: {answers[1]}"
    return AttackResult("a key in a trailer", measured, "400, 401 or 403", {*answers} <= {400, 401, 403})


def upgrades(setting: AttackSetting) -> AttackResult:
    """POSTs that offer an upgrade, as Java's HttpClient and curl --http2 send them."""
    with setting.service() as server:
        answered = offer_upgrades(server.port, 60.0, setting.keys["good"])
    return AttackResult(
        "POST with `Upgrade`", f"{answered} of {_REQUESTS} answered", f"{_REQUESTS}", answered == _REQUESTS
    )


def offer_upgrades(port: int, seconds: float, key: str) -> int:
    """Send a hundred requests with an upgrade and count those that are answered."""
    offers = {
        "h2c": ["HTTP2-Settings: AAMAAABkAAQAAP__", "Connection: Upgrade, HTTP2-Settings"],
        "websocket": ["Connection: Upgrade"],
    }
    answered, ends = 0, time.monotonic() + seconds
    for number in range(_REQUESTS):
        if time.monotonic() > ends:
            break
        protocol = [*offers][number % len(offers)]
        with contextlib.suppress(OSError), connected(port) as client:
            asked = request("POST", "/search", _QUERY, key, f"Upgrade: {protocol}", *offers[protocol])
            client.sendall(asked[: -len(_QUERY)])
            client.sendall(_QUERY)
            answered += status(said(client, 5.0)) == 200
    return answered


def smuggling(setting: AttackSetting) -> AttackResult:
    """Hide a request in the body of a request that offers an upgrade."""
    hidden = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    replies = []
    with setting.service() as server:
        for protocol in ("h2c", "websocket"):
            for apart in (False, True):
                head = request(
                    "POST", "/search", hidden, setting.keys["good"], "Connection: Upgrade", f"Upgrade: {protocol}"
                )
                with connected(server.port) as client:
                    client.sendall(head[: -len(hidden)] if apart else head)
                    if apart:
                        time.sleep(0.1)
                        client.sendall(hidden)
                    replies.append(said(client, 1.0, b'"openapi"').count(b'"openapi"'))
    return AttackResult(
        "a request in the body of an upgrade", f"answered {sum(replies)} times in {len(replies)}", "0", not sum(replies)
    )


def other_host(setting: AttackSetting) -> AttackResult:
    """Ask a service without keys under the Host evil.example, as DNS rebinding does."""
    with setting.service(keys=False) as server, connected(server.port) as client:
        client.sendall(request("POST", "/search", _QUERY).replace(b"Host: 127.0.0.1", b"Host: evil.example"))
        answer = status(said(client, 5.0))
    return AttackResult("`Host: evil.example` without keys", f"{answer}", "4xx", 400 <= answer < 500)
