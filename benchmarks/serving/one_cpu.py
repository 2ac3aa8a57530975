"""Limit the service to one processor: how much slower it gets, and whether any reply is late."""

import os
from collections import defaultdict

from benchmarks.markdown import Target, table, targets
from benchmarks.serving.cells import LoadCell, latency, measure, median, rate, ratio
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.servers import Server

HEADING = "One processor"
SET = "squad_v2_dev"
_CLIENTS = (16, 64)


def section(plan: ServingPlan) -> str:
    """Measure each service on one processor and on all."""
    prepared = plan.prepared(SET)
    services = [each for each in prepared.services() if each.name != "txtai API"]  # it has nothing to add here
    all_of_them = os.sched_getaffinity(0)
    one = {min(all_of_them)}
    rest = all_of_them - one or one
    cells: dict[tuple[str, int, bool], list[LoadCell]] = defaultdict(list)
    for number in range(plan.rounds):
        for service in services if number % 2 == 0 else services[::-1]:
            requests = [service.request(text) for text in prepared.queries]
            order = list(range(len(requests)))
            for limited in (False, True):
                with Server(service, one if limited else None) as server:
                    for clients in _CLIENTS:
                        generator = rest if limited else None
                        measure(server, requests, plan.warm_up(server, len(order), clients), generator)
                        cell = measure(server, requests, plan.closed(server, order, clients), generator, refusals=True)
                        cells[service.name, clients, limited].append(cell)
    rows, wanted = [], []
    for service in services:
        for clients in _CLIENTS:
            whole, on_one = (cells[service.name, clients, each] for each in (False, True))
            late = sum(count for cell in on_one for status, count in cell.sample.statuses.items() if status != 200)
            slower = ratio(whole, on_one, rate)
            percentiles = [
                f"{median(each, latency(99)):,.0f} → {median(on_one, latency(99)):,.0f}" for each in (whole,)
            ]
            rows.append(
                [
                    service.name,
                    clients,
                    f"{median(whole, rate):,.0f} → {median(on_one, rate):,.0f}",
                    f"{slower:.2f}",
                    *percentiles,
                    late,
                ]
            )
            if service.name.startswith("taugate"):
                what = f"{service.name}, {clients} clients"
                wanted.append(Target(f"{what}: throughput falls by a factor of", slower, at_most=2.2))
                wanted.append(Target(f"{what}: replies other than 200", late, at_most=0))
    header = ["service", "clients", "replies/s", "times fewer", "p99 ms", "replies other than 200"]
    return f"""\
The service may use {len(all_of_them)} processors, then only one of them (as with `taskset -c {min(one)}`); the load generator has the rest. The queries of {SET} come in a
closed loop, without a cache, {plan.rounds} rounds, {plan.seconds:g} s a cell. Figures are medians; ratios are taken within a round.

{table(header, rows)}

{targets(wanted)}
"""
