"""Large bodies from a client with a key."""

import contextlib
import socket
import time

from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from benchmarks.reliability.attacks.steady_client import SteadyClient
from benchmarks.reliability.attacks.traffic import connected, request, traffic
from benchmarks.reliability.attacks.unauthenticated import flood
from benchmarks.serving.load import LoadJob, run

_P50_MILLISECONDS = 20.0  # a fifth of what a person notices (0.1 s, Nielsen), on cores that the attackers use as well
_MEGABYTE = 1 << 20
_STALLED = 64
_SECONDS = 10.0


def unknown_fields(setting: AttackSetting) -> AttackResult:
    """Send bodies of 1 MB with 102,000 unknown fields, with a key that may ask one query a second."""
    with setting.service() as server:
        requests = [server.service.request("Who pays for the repair of the roof?")]
        job = LoadJob(server.port, [0], 4.0, clients=1)
        run(job, requests)
        before = run(job, requests).milliseconds(50)
        with traffic(flood, server.port, 8.0, many_fields(setting.keys["slow"]), 4) as sent:
            time.sleep(1.0)
            during = run(job, requests).milliseconds(50)
    measured = f"p50 of others {before:.2f} → {during:.2f} ms, {sent.result()} bodies"
    return AttackResult("1 MB of unknown fields", measured, f"{_P50_MILLISECONDS:g} ms", during <= _P50_MILLISECONDS)


def many_fields(key: str) -> bytes:
    """Build a request with a body of 1 MiB."""
    body = b'{"query":"a",' + b",".join(b'"f%d":1' % number for number in range(94_000)) + b"}"
    return request("POST", "/search", body[:-1] + b" " * (_MEGABYTE - len(body) - 1) + b"}", key)


def stalled(setting: AttackSetting) -> AttackResult:
    """Leave 64 bodies of one key just short of their end while other keys ask."""
    with setting.service() as server, traffic(stall, server.port, _SECONDS, setting.keys["other"]):
        time.sleep(2.0)
        with SteadyClient(server.port, setting.keys["good"], 40.0) as client:
            time.sleep(_SECONDS - 4.0)
    measured = f"{client.failed} of {len(client.asked)} failed ({client.statuses})"
    return AttackResult(f"{_STALLED} stalled bodies of another key", measured, "0", not client.failed)


def stall(port: int, seconds: float, key: str, stalled: int = _STALLED) -> int:
    """Connections opened to leave bodies of 1 MiB without their last byte; a connection that is closed is opened again."""
    body = b'{"queries":["' + b"a" * (_MEGABYTE - 16) + b'"]}'
    begun = request("POST", "/search/batch", body, key)[:-1]
    opened, ends = 0, time.monotonic() + seconds
    held: list[socket.socket] = []
    while time.monotonic() < ends:
        for _ in range(stalled - len(held)):
            with contextlib.suppress(OSError):
                client = connected(port)
                opened += 1
                client.sendall(begun)
                held.append(client)
        time.sleep(0.5)
        held = [client for client in held if _open(client)]
    for client in held:
        client.close()
    return opened


def _open(client: socket.socket) -> bool:
    """Return True if the service still waits; close a connection that was answered or closed."""
    client.setblocking(False)
    try:
        client.recv(1 << 16)
    except BlockingIOError:
        return True
    except OSError:
        pass
    client.close()
    return False
