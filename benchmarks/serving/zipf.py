"""Ask a thousand queries in Zipf's proportions, all cached, beside an endpoint that does nothing."""

from collections import defaultdict

import numpy as np

from benchmarks.markdown import Target, table, targets
from benchmarks.serving.cells import latency, measure, median, rate, ratio
from benchmarks.serving.closed import Turns
from benchmarks.serving.load import LoadJob
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.prepare import Prepared
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest, echo, taugate

HEADING = "Repeated queries"
SET = "squad_v2_dev"
_CLIENTS = (1, 16, 64)
_QUERIES, _EXPONENT, _DRAWN = 1_000, 1.0, 100_000
_FILL_SECONDS = 60.0  # at most, for a pass over all queries


def section(plan: ServingPlan) -> str:
    """Measure cached replies a second beside the empty endpoint."""
    prepared = plan.prepared(SET)
    order = zipf(plan.seed)
    cached = [taugate(prepared.releases, precision, cache=True) for precision in prepared.precisions]
    size = _reply_bytes(cached[0], prepared, order)
    services = [*cached, *prepared.peers(), echo(size)]
    bare, cells = services[-1].name, _take_turns(plan, prepared, services, order)
    rows = []
    for clients in _CLIENTS:
        for service in services:
            own = cells[service.name, clients]
            shares = f"{ratio(own, cells[bare, clients], rate):.2f}"
            percentiles = (f"{median(own, latency(p)):,.2f}" for p in (50, 95, 99))
            cpu = f"{median(own, lambda cell: cell.milliseconds_of_cpu):.3f}"
            rows.append([clients, service.name, f"{median(own, rate):,.0f}", *percentiles, cpu, shares])
    generator = max(cell.generator_share for rounds in cells.values() for cell in rounds)
    header = ["clients", "service", "replies/s", "p50 ms", "p95 ms", "p99 ms", "CPU ms a query", f"share of {bare}"]
    wanted = [
        Target(
            f"16 clients, {each.name}: replies/s as a share of {bare}",
            ratio(cells[each.name, 16], cells[bare, 16], rate),
            at_least=0.6,
        )
        for each in cached
    ]
    return f"""\
Popular queries come often: {_QUERIES:,} queries of {SET} are drawn with probability proportional to 1 / rank (Zipf, s = {_EXPONENT:g}). Taugate has answered each of them once before,
so all are cached. It runs with default settings. "Bare FastAPI" is an endpoint that checks the same request and sends {size:,} ready
bytes, the average size of Taugate's replies.

The services take turns in {plan.rounds} rounds, {plan.seconds:g} s a cell, in a closed loop. Figures are medians; shares are taken within a round. The load
generator takes at most {generator:.0%} of one core.

{table(header, rows)}

{targets(wanted)}
"""


def zipf(seed: int) -> list[int]:
    """Draw the positions of the queries, in the order in which they are asked."""
    weights = 1 / np.arange(1, _QUERIES + 1) ** _EXPONENT
    drawn: list[int] = np.random.default_rng(seed).choice(_QUERIES, size=_DRAWN, p=weights / weights.sum()).tolist()
    return drawn


def _take_turns(plan: ServingPlan, prepared: Prepared, services: list[ServiceUnderTest], order: list[int]) -> Turns:
    cells: Turns = defaultdict(list)
    for number in range(plan.rounds):
        for service in services if number % 2 == 0 else services[::-1]:
            requests = [service.request(text) for text in prepared.queries[:_QUERIES]]
            with Server(service) as server:
                if service.name.startswith("taugate"):
                    measure(server, requests, _every_one(server))
                for clients in _CLIENTS:
                    measure(server, requests, plan.warm_up(server, len(requests), clients))
                    cell = measure(server, requests, plan.closed(server, order, clients))
                    cells[service.name, clients].append(cell)
                    print(f"round {number + 1}, {service.name}, {clients} clients: {rate(cell):.0f}/s", flush=True)
    return cells


def _every_one(server: Server) -> LoadJob:
    return LoadJob(server.port, list(range(_QUERIES)), _FILL_SECONDS, clients=16, once=True)


def _reply_bytes(service: ServiceUnderTest, prepared: Prepared, order: list[int]) -> int:
    """Mean size of the replies in the order asked."""
    requests = [service.request(text) for text in prepared.queries[:_QUERIES]]
    with Server(service) as server:
        job = LoadJob(server.port, order[: 2 * _QUERIES], _FILL_SECONDS, clients=16, once=True)
        return round(float(measure(server, requests, job).sample.bytes.mean()))
