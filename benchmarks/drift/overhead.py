"""Measure what drift monitoring costs: the same service with and without, in turns."""

import random
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

from benchmarks.drift.look_time import kilobytes_of_the_alarms, microseconds_of_a_query, share_of_a_processor
from benchmarks.drift.plan import DriftPlan
from benchmarks.drift.traffic import asked
from benchmarks.drift.worlds import world
from benchmarks.markdown import Target, table, targets
from benchmarks.serving.cells import LoadCell, latency, measure, median, rate
from benchmarks.serving.load import LoadJob
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest, taugate

HEADING = "What it costs"
SET = "squad_v2_dev"
_CLIENTS, _KNOWN = 16, 500
_RATE = 300  # new queries a second, about what float32 answers on two cores
_ROUNDS_OF_A_PROCESS = 4
_Kind = tuple[str, bool]  # what is asked, whether it is watched


def section(plan: DriftPlan) -> str:
    """Time queries against both services in turns."""
    here = world(plan.data, SET, plan.work)
    texts = sorted({*asked(plan.data, SET)})
    random.Random(plan.seed).shuffle(texts)  # noqa: S311 (an order, not a secret)
    cells = _cells(plan.work / SET, texts, plan)
    rows, wanted = [], []
    for asks in ("new queries", "known queries"):
        on, off = cells[asks, True], cells[asks, False]
        for name, own in (("without", off), ("with", on)):
            figures = [f"{median(own, rate):,.0f}", *(f"{median(own, latency(p)):.2f}" for p in (50, 99))]
            rows.append([asks, name, *figures, f"{median(own, lambda cell: cell.milliseconds_of_cpu):.3f}"])
        slower = [1 - rate(a) / rate(b) for a, b in zip(on, off, strict=True)]
        later = [latency(99)(a) - latency(99)(b) for a, b in zip(on, off, strict=True)]
        wanted.append(
            Target(f"{asks}: share of the replies/s that watching takes{_error(slower)}", mean(slower), at_most=0.03)
        )
        wanted.append(Target(f"{asks}: added to p99{_error(later, ' ms')}", mean(later), at_most=0.2, unit=" ms"))
    kept, left = kilobytes_of_the_alarms(here)
    now = microseconds_of_a_query(here)
    a_look, a_show, share = share_of_a_processor(here, _RATE)
    wanted.append(Target("looking and showing: share of one processor", share, at_most=0.03))
    header = ["", "watch", "replies/s", "p50 ms", "p99 ms", "CPU ms a query"]
    return f"""\
Two services run side by side, one with drift monitoring and one without. {_CLIENTS} clients load them in turns, in a closed loop, with {plan.rounds}
rounds of {plan.seconds:g} s on {SET} in float32. Both are started anew every {_ROUNDS_OF_A_PROCESS} rounds. Figures are medians, for new queries without a cache and
for {_KNOWN} known ones with it.

{table(header, rows)}

The alarms alone take {now:.1f} µs of processor time a query, in batches of {5 * _RATE:,}. After 200,000 distinct queries the alarms keep {kept:,.0f} kB in the process and {left:,.0f} kB in Redis. Neither grows with
the traffic.

Every 5 s the service weighs up to {5 * _RATE:,} queries, in {a_look:.1f} ms of processor time. Every 15 s it computes the metrics of a window of
10,000, in {a_show:.0f} ms.

{targets(wanted)}
"""


def _error(values: list[float], unit: str = "") -> str:
    """Format the standard error over the rounds."""
    return f", mean of the rounds ± {stdev(values) / len(values) ** 0.5:.2g}{unit}"


def _cells(releases: Path, texts: list[str], plan: DriftPlan) -> dict[_Kind, list[LoadCell]]:
    """Measure both services in turns; each is restarted every few rounds, and the order alternates.

    One and the same program is some percent faster in one process than in the next, and in the one that began last.
    """
    cells: dict[_Kind, list[LoadCell]] = {}
    for asks, cache, order in (("new queries", False, [*range(len(texts))]), ("known queries", True, [*range(_KNOWN)])):
        for first in range(0, plan.rounds, _ROUNDS_OF_A_PROCESS):
            kinds = (True, False) if first // _ROUNDS_OF_A_PROCESS % 2 else (False, True)
            one, other = (_service(releases, cache, watched=watched) for watched in kinds)
            with Server(one) as begun_first, Server(other) as begun_last:
                for number in range(first - 1, min(first + _ROUNDS_OF_A_PROCESS, plan.rounds)):
                    turns = [*zip(kinds, (begun_first, begun_last), strict=True)]
                    for kind, server in turns if number % 2 else reversed(turns):
                        part = order[number * 997 % len(order) :] + order[: number * 997 % len(order)]
                        requests = [server.service.request(text) for text in texts]
                        cell = measure(server, requests, LoadJob(server.port, part, plan.seconds, clients=_CLIENTS))
                        if number >= first:  # the one before warms up
                            cells.setdefault((asks, kind), []).append(cell)
    return cells


def _service(releases: Path, cache: bool, *, watched: bool) -> ServiceUnderTest:
    service = taugate(releases, "float32", cache=cache)
    return replace(service, environment=service.environment | {"TAUGATE_DRIFT": str(watched).lower()})
