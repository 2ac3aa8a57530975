"""Compare the doors of one service: /search and the dialects, on the same process, in turns."""

import json
from collections import defaultdict
from dataclasses import replace

import orjson

from benchmarks.markdown import Target, table, targets
from benchmarks.serving.cells import LoadCell, latency, measure, median, rate, ratio
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.prepare import Prepared
from benchmarks.serving.servers import Server
from benchmarks.serving.services import Call, ServiceUnderTest, taugate
from taugate.service.access.authorization import DIFY_PATH, VECTOR_STORE_PATH

HEADING = "Dialects"
SET = "squad_v2_dev"
_CLIENTS = 16
_AS_FAST = 0.95  # of /search: what two runs of the same door differ by
_SEARCH = "/search"
_CACHED = 200  # queries that are asked again and again where all are cached
Turns = dict[str, list[LoadCell]]  # by door, one cell a round


def section(plan: ServingPlan) -> str:
    """Measure each door with every query new, and with queries that the cache knows."""
    prepared = plan.prepared(SET)
    new, known = (_take_turns(plan, prepared, cache=cache) for cache in (False, True))
    header = ["queries", "door", "replies/s", "p50 ms", "p99 ms", "CPU ms a query", "replies over /search"]
    rows = [row for name, cells in (("all new", new), ("all cached", known)) for row in _rows(name, cells)]
    wanted = [
        Target(
            f"{_CLIENTS} clients, every query {name}: {door} over /search",
            ratio(cells, turns[_SEARCH], rate),
            at_least=_AS_FAST,
        )
        for name, turns in (("new", new), ("cached", known))
        for door, cells in turns.items()
        if door != _SEARCH
    ]
    return f"""\
One service with `TAUGATE_DIALECTS=openai,dify` and {prepared.documents:,} documents of {SET}, asked by {_CLIENTS} clients in a closed loop. The doors take
turns on the same process in {plan.rounds} rounds of {plan.seconds:g} s, in the opposite order every other time. Figures are medians of the rounds; ratios
are taken within a round. All ask for the calibrated k. *All new*: without a cache, so every query is encoded. *All cached*: every reply is in
memory, in the form of its door, so that HTTP and the validation of the body are all there is.

{table(header, rows)}

{targets(wanted)}
"""


def doors(releases: ServiceUnderTest) -> list[ServiceUnderTest]:
    """Return the same service by each of its doors.

    Args:
        releases: As it is asked on /search.
    """
    spoken = replace(releases, environment=releases.environment | {"TAUGATE_DIALECTS": "openai,dify"})
    return [
        spoken,
        replace(spoken, call=_openai, found=lambda reply: [each["file_id"] for each in json.loads(reply)["data"]]),
        replace(
            spoken,
            call=_dify,
            found=lambda reply: [each["metadata"]["id"] for each in json.loads(reply)["records"]],
        ),
    ]


def _openai(text: str) -> Call:
    return "POST", VECTOR_STORE_PATH.format(vector_store_id="current"), orjson.dumps({"query": text})


def _dify(text: str) -> Call:
    return "POST", DIFY_PATH, orjson.dumps({"knowledge_id": "current", "query": text})


def _take_turns(plan: ServingPlan, prepared: Prepared, *, cache: bool) -> Turns:
    """Measure all doors of one process, round after round.

    Raises:
        ValueError: Where two of them find something else.
    """
    cells: Turns = defaultdict(list)
    through = doors(taugate(prepared.releases, "auto", cache=cache))
    requests = {_path(door): [door.request(text) for text in prepared.queries] for door in through}
    order = list(range(len(prepared.queries)))
    asked = order[-_CACHED:] if cache else order  # those of the warm-up
    with Server(through[0]) as server:
        _check(server, through, prepared.queries)
        for sent in requests.values():
            measure(server, sent, plan.warm_up(server, len(order), _CLIENTS))
        for number in range(plan.rounds):
            for path in list(requests)[:: 1 if number % 2 == 0 else -1]:
                cell = measure(server, requests[path], plan.closed(server, asked, _CLIENTS))
                cells[path].append(cell)
                print(f"round {number + 1}, {path}, {'cached' if cache else 'new'}: {rate(cell):.0f}/s", flush=True)
    return {path: cells[path] for path in requests}


def _check(server: Server, through: list[ServiceUnderTest], queries: list[str]) -> None:
    for text in queries[:50]:
        found = []
        for door in through:
            server.service = door
            found.append(door.found(server.ask(text)))
        server.service = through[0]
        if any(each != found[0] for each in found):
            raise ValueError(f"the doors find different documents for {text!r}: {found}")


def _path(door: ServiceUnderTest) -> str:
    return door.call("")[1]


def _rows(name: str, cells: Turns) -> list[list[str]]:
    return [
        [
            name,
            path,
            f"{median(own, rate):,.0f}",
            *(f"{median(own, latency(percentile)):,.1f}" for percentile in (50, 99)),
            f"{median(own, lambda cell: cell.milliseconds_of_cpu):.2f}",
            f"{ratio(own, cells[_SEARCH], rate):.2f}",
        ]
        for path, own in cells.items()
    ]
