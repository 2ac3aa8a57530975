"""Send requests at fixed rates, whether or not earlier ones were answered."""

import statistics
from collections import defaultdict

from benchmarks.markdown import table
from benchmarks.serving.cells import LoadCell, latency, measure, median, rate
from benchmarks.serving.load import LoadJob
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.prepare import Prepared
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest

HEADING = "Open loop, every query new"
SET = "squad_v2_dev"
_SHARES = (0.5, 0.8, 0.95)
_CLIENTS = 64  # of the closed loop that says what a service can do
_PEER = "usual service"


def section(plan: ServingPlan) -> str:
    """Raise the rate step by step for each service and report latency and refusals."""
    prepared = plan.prepared(SET)
    services = prepared.services()
    capacity = {service.name: _capacity(plan, prepared, service) for service in services}
    cells: dict[tuple[str, float], list[LoadCell]] = defaultdict(list)
    rates = {name: {share * own for share in _SHARES} for name, own in capacity.items()}
    common = [share * capacity[_PEER] for share in _SHARES[:2]]  # beyond them the peer has no room for chance
    for number in range(plan.rounds):
        for service in services if number % 2 == 0 else services[::-1]:
            requests = [service.request(text) for text in prepared.queries]
            with Server(service) as server:
                measure(server, requests, plan.warm_up(server, len(requests), 16))
                for each in sorted(rates[service.name] | set(common)):
                    order = list(range(len(requests)))
                    job = LoadJob(server.port, order, plan.seconds, rate=each, seed=plan.seed + number)
                    cells[service.name, each].append(measure(server, requests, job))
    own = [
        [f"{share:.0%} of its own", *_row(service.name, share * capacity[service.name], cells)]
        for service in services
        for share in _SHARES
    ]
    same = [
        [f"{each / capacity[_PEER]:.0%} of the {_PEER}'s", *_row(service.name, each, cells)]
        for each in common
        for service in services
    ]
    header = [
        "rate",
        "service",
        "requests/s",
        "good replies/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "others than 200",
        "sent late by, ms",
    ]
    lines = "; ".join(f"{name} {own:,.0f}/s" for name, own in capacity.items())
    return f"""\
An open loop: requests are due at random times (a Poisson process), whether or not earlier ones were answered. Latency counts from
that time, so waiting to be sent counts too (no coordinated omission). The queries of {SET} are distinct, and there is no cache.

The rates are shares of what each service can do: its replies/s for {_CLIENTS} clients in a closed loop, the median of {plan.rounds} rounds. That is {lines}.
Then the services take turns in {plan.rounds} rounds, {plan.seconds:g} s a rate. Figures are medians. "Sent late" is how long after its due time the load generator
sent a request.

{table(header, own)}

The same rate for all:

{table(header, same)}
"""


def _capacity(plan: ServingPlan, prepared: Prepared, service: ServiceUnderTest) -> float:
    requests = [service.request(text) for text in prepared.queries]
    order = list(range(len(requests)))
    with Server(service) as server:
        measure(server, requests, plan.warm_up(server, len(requests), _CLIENTS))
        return statistics.median(
            rate(measure(server, requests, plan.closed(server, order, _CLIENTS))) for _ in range(plan.rounds)
        )


def _row(name: str, asked: float, cells: dict[tuple[str, float], list[LoadCell]]) -> list[str]:
    own = cells[name, asked]
    percentiles = [f"{median(own, latency(p)):,.1f}" for p in (50, 95, 99)]
    others = sum(count for cell in own for status, count in cell.sample.statuses.items() if status != 200)
    late = median(own, lambda cell: 1000 * statistics.median((cell.sample.sent - cell.sample.due).tolist()))
    return [name, f"{asked:,.0f}", f"{median(own, rate):,.0f}", *percentiles, str(others), f"{late:.2f}"]
