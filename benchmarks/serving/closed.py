"""Compare services in a closed loop without a cache: every query is new, and services take turns."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from benchmarks.markdown import Target, table, targets
from benchmarks.serving.agreement import check
from benchmarks.serving.cells import LoadCell, latency, measure, median, rate, ratio
from benchmarks.serving.encoder_floor import Floor, floor_of
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.prepare import Prepared
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest
from taugate.release.verify import verify_searchable
from taugate.retrieval.folders import encoder_folders

HEADING = "Closed loop, every query new"
SET = "squad_v2_dev"
CLIENTS = (1, 4, 16, 64)
FLOAT32, INT8 = "taugate float32", "taugate int8"
TIMES = {FLOAT32: 10, INT8: 18}  # the throughput that is wanted, over that of a peer
BATCHES = (1, 4, 16, 64)
_FLOOR_SECONDS = 3.0  # for each batch size
Turns = dict[tuple[str, int], list[LoadCell]]  # by service and clients, one cell a round


@dataclass(frozen=True)
class ClosedLoopFigures:
    """Figures of the closed loops, and the ceilings that the encoder sets.

    Attributes:
        ceilings: queries/s of the encoder alone, one table a round, for each of taugate's two services.
    """

    cells: Turns
    ceilings: dict[str, list[dict[int, float]]]


def take_turns(
    plan: ServingPlan,
    prepared: Prepared,
    services: list[ServiceUnderTest],
    clients: tuple[int, ...],
    *,
    floors: bool = True,
) -> ClosedLoopFigures:
    """Measure all services round after round; the order is reversed every other time."""
    cells: Turns = defaultdict(list)
    found: dict[str, list[dict[int, float]]] = defaultdict(list)
    check(services, prepared.queries)
    order = list(range(len(prepared.queries)))
    for number in range(plan.rounds):
        for service in services if number % 2 == 0 else services[::-1]:
            requests = [service.request(text) for text in prepared.queries]
            with Server(service) as server:
                for count in clients:
                    measure(server, requests, plan.warm_up(server, len(order), count))
                    cell = measure(server, requests, plan.closed(server, order, count))
                    cells[service.name, count].append(cell)
                    print(f"round {number + 1}, {service.name}, {count} clients: {rate(cell):.0f}/s", flush=True)
            if floors and service.name in TIMES:
                own = [cells[service.name, count][-1].batch or 1 for count in clients]
                sizes = [*BATCHES, *(round(size) for size in own)]
                found[service.name].append(floor(plan, prepared, service.name, sizes).rates)
    return ClosedLoopFigures(cells, found)


def section(plan: ServingPlan) -> str:
    """Measure replies a second and latency by number of clients, in rounds."""
    prepared = plan.prepared(SET)
    measured = take_turns(plan, prepared, [*prepared.services(), prepared.tuned()], CLIENTS)
    names = services_of(measured.cells)
    alone = [
        [name, *(f"{_median_ceiling(rounds, size):,.0f}" for size in BATCHES)]
        for name, rounds in sorted(measured.ceilings.items())
    ]
    return f"""\
A closed loop: each client sends its next query when it has the reply to the last. {SET} has {prepared.documents:,} documents and {len(prepared.queries):,} distinct
queries, asked in random order without a cache, top 5. A query repeats only after all others have been asked.

The services take turns in {plan.rounds} rounds; each is started anew and warmed up. A cell lasts {plan.seconds:g} s. Figures are medians of the rounds. Ratios are
taken within a round: Taugate's replies over the other's, and the other's p99 over Taugate's. The load generator takes at most {_most_generator(measured.cells):.0%}
of one core.

{_table(measured.cells, names, CLIENTS)}

The encoder alone is the upper limit. This table has its queries/s by batch size: the better of one session with all threads, and one
session for each core.

{table(["encoder of", *(f"{size} together" for size in BATCHES)], alone)}

{targets(wanted(measured))}
"""


def services_of(cells: Turns) -> list[str]:
    """Names, in the order of the first round."""
    return list(dict.fromkeys(name for name, _ in cells))


def wanted(measured: ClosedLoopFigures) -> list[Target]:
    """List the targets of the services that were measured."""
    cells, rows = measured.cells, []
    ours = [name for name in TIMES if (name, 16) in cells]
    for peer in [name for name in services_of(cells) if name not in TIMES]:
        for own in ours:
            times = TIMES[own]
            faster = ratio(cells[own, 16], cells[peer, 16], rate)
            rows.append(Target(f"16 clients, {own}: throughput over {peer}", faster, at_least=times))
        for own in ours:
            tail = ratio(cells[own, 16], cells[peer, 16], latency(99))
            rows.append(Target(f"16 clients, {own}: p99 over {peer}", tail, at_most=1 / 8))
    for service in ours:
        if ("usual service", 1) in cells:
            one = ratio(cells[service, 1], cells["usual service", 1], latency(50))
            rows.append(Target(f"one client, {service}: p50 over usual service", one, at_most=1 / 3))
        if service in measured.ceilings:
            what = f"16 clients, {service}: share of the encoder alone at its {median(cells[service, 16], _batch):.1f} queries a batch"
            rows.append(Target(what, share_of_ceiling(measured, service, 16), at_least=0.85))
    return rows


def share_of_ceiling(measured: ClosedLoopFigures, own: str, clients: int) -> float:
    """Median over the rounds of the throughput as a share of the encoder's, at the batch size reached."""
    pairs = zip(measured.cells[own, clients], measured.ceilings[own], strict=True)
    shares = sorted(rate(cell) / ceiling[round(_batch(cell))] for cell, ceiling in pairs)
    return shares[len(shares) // 2]


def _table(cells: Turns, names: list[str], clients: tuple[int, ...]) -> str:
    rows = []
    for count in clients:
        for name in names:
            own = cells[name, count]
            row = [count, name, f"{median(own, rate):,.0f}", *(f"{median(own, latency(p)):,.1f}" for p in (50, 95, 99))]
            row.append(f"{median(own, lambda cell: cell.milliseconds_of_cpu):.2f}")
            row.append(f"{median(own, _batch):.1f}" if own[0].batch else "")
            for taugate in [each for each in names if each in TIMES]:
                faster = f"{ratio(cells[taugate, count], own, rate):.1f} / {ratio(own, cells[taugate, count], latency(99)):.1f}"
                row.append("" if name in TIMES else faster)
            rows.append(row)
    header = ["clients", "service", "replies/s", "p50 ms", "p95 ms", "p99 ms", "CPU ms a query", "queries a batch"]
    return table([*header, *(f"{each}: times the replies / p99 shorter" for each in names if each in TIMES)], rows)


def _batch(cell: LoadCell) -> float:
    return cell.batch or 1.0


def _most_generator(cells: Turns) -> float:
    return max(cell.generator_share for rounds in cells.values() for cell in rounds)


def _median_ceiling(rounds: list[dict[int, float]], size: int) -> float:
    return sorted(each[size] for each in rounds)[len(rounds) // 2]


def floor(plan: ServingPlan, prepared: Prepared, name: str, sizes: list[int]) -> Floor:
    """The encoder of one of taugate's services, alone."""
    precision: Literal["int8", "float32"] = "int8" if name == INT8 else "float32"
    folder, *_ = encoder_folders(prepared.release, verify_searchable(prepared.release), precision)
    return floor_of(folder, prepared.queries, sizes, min(plan.seconds, _FLOOR_SECONDS))
