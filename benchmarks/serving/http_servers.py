"""Run one application on uvicorn, with each of its parsers, and on granian, to choose the HTTP server."""

import sys
from collections import defaultdict
from dataclasses import replace

from benchmarks.markdown import table
from benchmarks.serving.cells import latency, measure, median, rate, ratio
from benchmarks.serving.closed import Turns
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.servers import Server
from benchmarks.serving.services import PEERS, ServiceUnderTest, taugate

HEADING = "HTTP servers"
SET = "squad_v2_dev"
_CLIENTS = (1, 16)
_PARSERS = {"zttp": "ZttpProtocol", "httptools": "HttpToolsProtocol"}
_KNOWN = 100  # queries that are asked again and again: as many as the warm-up asks for


def section(plan: ServingPlan) -> str:
    """Measure each HTTP server with the same application."""
    prepared = plan.prepared(SET)
    precision = prepared.precisions[-1]
    rows = []
    for known in (False, True):
        own = taugate(prepared.releases, precision, cache=known)
        services = [own, *(_parsed_by(own, parser) for parser in _PARSERS), _on_granian(own, str(prepared.releases))]
        queries = prepared.queries[:_KNOWN] if known else prepared.queries
        cells = _take_turns(plan, services, queries)
        for clients in _CLIENTS:
            for service in services:
                cell = cells[service.name, clients]
                percentiles = [f"{median(cell, latency(p)):,.2f}" for p in (50, 99)]
                share = f"{ratio(cell, cells[own.name, clients], rate):.2f}"
                cpu = f"{median(cell, lambda one: one.milliseconds_of_cpu):.2f}"
                asked = "known" if known else "new"
                rows.append([asked, clients, service.name, f"{median(cell, rate):,.0f}", share, *percentiles, cpu])
    header = ["queries", "clients", "service", "replies/s", "of h11's", "p50 ms", "p99 ms", "CPU ms a query"]
    return f"""\
One process of Taugate's application answers the queries of {SET} on three HTTP servers: uvicorn with uvloop and h11, as `taugate serve`
runs it; uvicorn with another of its parsers; and granian (ASGI), which has none of Taugate's deadlines. docs/dependencies.md says which
was chosen, and why. They take turns in {plan.rounds} rounds, {plan.seconds:g} s a cell, in a closed loop. Figures are medians; ratios are taken within a round.

{table(header, rows)}
"""


def _take_turns(plan: ServingPlan, services: list[ServiceUnderTest], queries: list[str]) -> Turns:
    cells: Turns = defaultdict(list)
    order = list(range(len(queries)))
    for number in range(plan.rounds):
        for service in services if number % 2 == 0 else services[::-1]:
            requests = [service.request(text) for text in queries]
            with Server(service) as server:
                for clients in _CLIENTS:
                    measure(server, requests, plan.warm_up(server, len(order), clients))
                    cells[service.name, clients].append(measure(server, requests, plan.closed(server, order, clients)))
    return cells


def _parsed_by(service: ServiceUnderTest, parser: str) -> ServiceUnderTest:
    swap = (
        f"from uvicorn.protocols.http.{parser}_impl import {_PARSERS[parser]}; import taugate.service.process.connection as ours; "
        f"ours.H11Protocol = {_PARSERS[parser]}; import runpy; runpy.run_module('taugate', run_name='__main__')"
    )

    def command(port: int) -> list[str]:
        given = service.command(port)
        return [sys.executable, "-c", swap, *given[given.index("serve") :]]

    return replace(service, name=f"{service.name} with {parser}", command=command)


def _on_granian(service: ServiceUnderTest, releases: str) -> ServiceUnderTest:
    start = [sys.executable, "-m", "granian", "--interface", "asgi", "--factory", "--workers", "1", "--no-log"]

    def command(port: int) -> list[str]:
        return [*start, "--host", "127.0.0.1", "--port", str(port), f"{PEERS}.on_granian:app"]

    environment = service.environment | {"TAUGATE_RELEASES": releases}
    return replace(service, name=f"{service.name} on granian", command=command, environment=environment)
