"""Divide the time of one query by stage, for new and for cached queries."""

import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.markdown import Target, table, targets
from benchmarks.serving.cells import latency, measure
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest, taugate

HEADING = "Where the time of a query goes"
SET = "squad_v2_dev"
_ORDER = (
    "routes, validation",
    "cache",
    "cache key, admission, single flight",
    "to a thread",
    "tokens",
    "batch",
    "encode",
    "search and cut",
    "documents",
    "back to the event loop",
    "reply",
    "send, log, metrics",
)
_QUEUEING = ("to a thread", "batch", "back to the event loop")
_KNOWN = 50  # queries that are asked again and again


def section(plan: ServingPlan) -> str:
    """Profile single queries and report the median of each stage."""
    prepared = plan.prepared(SET)
    columns: dict[str, dict[str, float]] = {}
    for precision in prepared.precisions:
        service = taugate(prepared.releases, precision)
        columns[f"{precision}, new"] = _stages(plan, service, prepared.queries)
    service = taugate(prepared.releases, prepared.precisions[0], cache=True)
    columns["known"] = _stages(plan, service, prepared.queries[:_KNOWN])
    names = [*_ORDER, "outside", "client"]
    rows = [
        [
            _LABELS.get(name, name),
            *(f"{1e6 * column[name]:,.0f}" if name in column else "" for column in columns.values()),
        ]
        for name in names
    ]
    wanted = [
        Target(
            f"one client, {name.removesuffix(', new')}: queueing, ms",
            1000 * sum(stages.get(part, 0.0) for part in _QUEUEING),
            at_most=0.3,
        )
        for name, stages in columns.items()
        if name != "known"
    ]
    return f"""\
Median times in µs for one client that asks the queries of {SET} for {plan.seconds:g} s. The service itself takes the time at the start and end of each
stage.

{table(["stage", *columns], rows)}

{targets(wanted)}
"""


_LABELS = {
    "outside": "outside: uvicorn's parsing, sockets, the load generator",
    "client": "**all, as the client sees it**",
}


def _stages(plan: ServingPlan, service: ServiceUnderTest, queries: list[str]) -> dict[str, float]:
    """Median seconds of each stage."""
    requests = [service.request(text) for text in queries]
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.json"
        with Server(_profiled(service, profile)) as server:
            measure(server, requests, plan.warm_up(server, len(requests), 1))
            cell = measure(server, requests, plan.closed(server, list(range(len(requests))), 1))
        requests_timed = json.loads(profile.read_text())[-cell.sample.statuses[200] :]  # less those that warmed up
    names = max(requests_timed, key=len)
    stages = {name: statistics.median(each.get(name, 0.0) for each in requests_timed) for name in names}
    client = latency(50)(cell) / 1000
    return stages | {"outside": client - sum(stages.values()), "client": client}


def _profiled(service: ServiceUnderTest, profile: Path) -> ServiceUnderTest:
    start = [sys.executable, "-m", "benchmarks.serving.profiled"]

    def command(port: int) -> list[str]:
        given = service.command(port)
        return [*start, *given[given.index("serve") :]]

    return replace(service, command=command, environment=service.environment | {"PROFILE": str(profile)})
