"""Measure what keys and rates add to the time of a cached query, with and without in turns."""

import json
import secrets
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.drift.traffic import asked, released
from benchmarks.markdown import Target, table, targets
from benchmarks.redis_server import redis_server
from benchmarks.reliability.plan import ReliabilityPlan
from benchmarks.serving.cells import LoadCell, latency, measure, rate
from benchmarks.serving.load import LoadJob
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest, taugate
from taugate.service.access.authorization import digest

HEADING = "What keys and rates cost"
_SET, _KNOWN, _CLIENTS = "squad_v2_dev", 500, 16
_WITHOUT, _KEYS, _RATE, _SHARED = "no keys", "20 keys", "and a rate, in process", "and a rate, in Redis"
_OTHERS = 19  # keys beside the one that is used: every one is compared
_NEVER_REACHED = 1e6  # queries a second


def section(plan: ReliabilityPlan) -> str:
    """Time a cached query against both services in turns."""
    released(plan.data, _SET, plan.kept)
    texts = sorted({*asked(plan.data, _SET)})[:_KNOWN]
    cells = turns(plan.kept / _SET, texts, plan.seconds, plan.rounds)
    first = cells[_WITHOUT]
    rows = [
        [
            name,
            f"{median(rate(cell) for cell in own):,.0f}",
            f"{_ratio(own, first):.3f}",
            f"{median(cell.milliseconds_of_cpu for cell in own):.3f}",
            *(f"{median(latency(p)(cell) for cell in own):.2f}" for p in (50, 99)),
        ]
        for name, own in cells.items()
    ]
    wanted = [Target("replies/s with keys over those without", _ratio(cells[_KEYS], first), at_least=0.95)]
    return f"""\
{_CLIENTS} clients ask {_KNOWN} known queries of {_SET} in a closed loop, in float32. All services run side by side and are loaded in turns, {plan.rounds} rounds
of {plan.seconds:g} s. Figures are medians; ratios are taken within a round.

{table(["", "replies/s", "ratio", "CPU ms a query", "p50 ms", "p99 ms"], rows)}

{targets(wanted)}
"""


def turns(releases: Path, texts: list[str], seconds: float, rounds: int) -> dict[str, list[LoadCell]]:
    """Cells of each kind of service, in the order of the rounds; the round before the first warms up."""
    cells: dict[str, list[LoadCell]] = {}
    with redis_server() as redis, ExitStack() as stack:
        services = _services(taugate(releases, "float32", cache=True), redis.url)
        servers = {name: stack.enter_context(Server(service)) for name, service in services.items()}
        for number in range(-1, rounds):
            order = [*servers.items()]
            for name, server in order if number % 2 else reversed(order):
                requests = [server.service.request(text) for text in texts]
                job = LoadJob(server.port, [*range(len(texts))], seconds, clients=_CLIENTS)
                cell = measure(server, requests, job)
                if number >= 0:
                    cells.setdefault(name, []).append(cell)
    return {name: cells[name] for name in services}


def _services(plain: ServiceUnderTest, redis: str) -> dict[str, ServiceUnderTest]:
    key = secrets.token_urlsafe(32)
    scopes = ["search", "metrics"]
    others = [
        {"name": f"other-{number}", "sha256": digest(secrets.token_bytes(32)).hex(), "scopes": scopes}
        for number in range(_OTHERS)
    ]
    own = {"name": "own", "sha256": digest(key.encode()).hex(), "scopes": scopes}
    keys = {"TAUGATE_KEYS": json.dumps([*others, own])}
    limited = {"TAUGATE_QUERIES_PER_SECOND": str(_NEVER_REACHED)}
    # Long enough for a Redis that shares two cores with four services: one that is left alone would cost nothing.
    shared = {"TAUGATE_REDIS_URL": redis, "TAUGATE_REDIS_TIMEOUT_MS": "1000"}
    kinds = {_WITHOUT: {}, _KEYS: keys, _RATE: keys | limited, _SHARED: keys | limited | shared}
    return {
        name: replace(
            plain,
            environment=plain.environment | environment,
            headers={"Authorization": f"Bearer {key}"} if environment else {},
        )
        for name, environment in kinds.items()
    }


def _ratio(own: list[LoadCell], first: list[LoadCell]) -> float:
    return median(rate(a) / rate(b) for a, b in zip(own, first, strict=True))
