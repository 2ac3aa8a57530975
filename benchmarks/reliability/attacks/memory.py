"""An attack on memory: queries that never repeat."""

import http.client

import orjson

from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from benchmarks.serving.client import HOST
from benchmarks.serving.servers import Server

FULL = 50_000  # queries after which every cache is full: the process cache holds about 12,000
BATCH = 64  # queries in a request, the default of TAUGATE_MAX_BATCH
MAX_GROWTH = 0.05


def distinct(setting: AttackSetting) -> AttackResult:
    """Ask queries that never repeat, with drift monitoring on."""
    with setting.service(settings={"WORKERS": "1"}) as server:
        seen = resident(server, setting.size, FULL)
    (first, before), *_, (last, after) = seen.items()
    measured = (
        f"{before / 1e6:.0f} MB after {first:,}, {after / 1e6:.0f} MB after {last:,}: "
        f"{(after - before) / (last - first) / 1000:.2f} kB a query"
    )
    limit = f"± {MAX_GROWTH:.0%} after {FULL:,}"
    return AttackResult("distinct queries", measured, limit, abs(after - before) <= MAX_GROWTH * before)


def resident(server: Server, queries: int, every: int) -> dict[int, int]:
    """Ask distinct queries, and return resident bytes after every `every`.

    Raises:
        ValueError: For a refusal.
    """
    seen: dict[int, int] = {}
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    headers = {"Content-Type": "application/json"} | server.service.headers
    asked = 0
    while asked < queries:
        numbers = range(asked, min(asked + BATCH, queries))
        body = orjson.dumps({"queries": [f"permit {number} of the town hall" for number in numbers]})
        connection.request("POST", "/search/batch", body, headers)
        reply = connection.getresponse()
        said = reply.read()
        if reply.status != 200:
            raise ValueError(f"{reply.status} {said[:300]!r}")
        asked += len(numbers)
        if asked // every > (asked - len(numbers)) // every or asked == queries:
            seen[asked] = server.resident_bytes
    connection.close()
    return seen
