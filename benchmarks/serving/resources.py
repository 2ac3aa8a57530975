"""Measure what each service takes: time until the first answer, memory, processor time of a query."""

import statistics
from collections import defaultdict
from dataclasses import dataclass

from benchmarks.markdown import table
from benchmarks.serving.cells import LoadCell, measure, median, rate
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.servers import Server

HEADING = "Start-up, memory, processor time"
SET = "squad_v2_dev"
_CLIENTS = 16


@dataclass(frozen=True)
class _Turn:
    startup: float
    resident: int
    cell: LoadCell


def section(plan: ServingPlan) -> str:
    """Start each service and report start-up, memory and processor time."""
    prepared = plan.prepared(SET)
    services = prepared.services()
    turns: dict[str, list[_Turn]] = defaultdict(list)
    for number in range(plan.rounds):
        for service in services if number % 2 == 0 else services[::-1]:
            requests = [service.request(text) for text in prepared.queries]
            with Server(service) as server:
                resident = server.resident_bytes
                measure(server, requests, plan.warm_up(server, len(requests), _CLIENTS))
                cell = measure(server, requests, plan.closed(server, list(range(len(requests))), _CLIENTS))
                turns[service.name].append(_Turn(server.startup, resident, cell))
    first = turns[services[0].name]
    rows = []
    for name, own in turns.items():
        cells = [turn.cell for turn in own]
        pairs = list(zip(own, first, strict=True))
        rows.append(
            [
                name,
                f"{statistics.median(turn.startup for turn in own):.1f} s",
                f"{statistics.median(a.startup / b.startup for a, b in pairs):.1f}",
                f"{statistics.median(turn.resident for turn in own) / 1e6:,.0f} MB",
                f"{median(cells, lambda cell: cell.resident) / 1e6:,.0f} MB",
                f"{statistics.median(a.cell.resident / b.cell.resident for a, b in pairs):.1f}",
                f"{median(cells, lambda cell: cell.milliseconds_of_cpu):.2f} ms",
                f"{statistics.median(a.cell.milliseconds_of_cpu / b.cell.milliseconds_of_cpu for a, b in pairs):.1f}",
                f"{median(cells, rate):,.0f}",
            ]
        )
    header = [
        "service",
        "first answer after",
        "ratio",
        "memory then",
        "under load",
        "ratio",
        "CPU a query",
        "ratio",
        "replies/s",
    ]
    return f"""\
{_CLIENTS} clients ask the queries of {SET} in a closed loop, without a cache. The services take turns in {plan.rounds} rounds, with {plan.seconds:g} s of load. Figures are
medians; ratios are to {services[0].name}, within a round.

*First answer after*: from the start of the process to the first reply, with files already in the page cache. *Memory*: resident
memory of all processes, mapped files included, before the load and at its end.

{table(header, rows)}
"""
