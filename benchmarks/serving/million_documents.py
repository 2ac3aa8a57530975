"""Serve a million documents from an approximate index, and compare with the encoder's own time."""

import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.markdown import Target, table, targets
from benchmarks.serving.cells import LoadCell, latency, measure, median, rate
from benchmarks.serving.closed import floor
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.prepare import Prepared, precisions
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate
from benchmarks.serving.tiled_release import JITTER, tiled_release
from taugate.registry.catalog import find
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.layout import ENCODER_FOLDER
from taugate.retrieval.release.verify import verify

HEADING = "1,000,000 documents"
SET = "mixed_large"
_CLIENTS = (1, 16)
_CHOOSING = 500  # queries that choose the breadth of the index: the last, which are asked last


def section(plan: ServingPlan) -> str:
    """Time queries and how much of each is the encoder's."""
    prepared = plan.prepared(SET)
    releases = prepared.folder / f"releases-{plan.documents}"
    if not (releases / "current").is_file():
        _write(plan, prepared, releases)
    record = verify(find(releases)).index
    services = [taugate(releases, precision) for precision in precisions(find(releases))]
    cells: dict[tuple[str, int], list[LoadCell]] = defaultdict(list)
    alone: dict[str, list[float]] = defaultdict(list)
    startup: dict[str, list[float]] = defaultdict(list)
    for number in range(plan.rounds):
        for service in services if number % 2 == 0 else services[::-1]:
            requests = [service.request(text) for text in prepared.queries]
            order = list(range(len(requests)))
            with Server(service) as server:
                startup[service.name].append(server.startup)
                for clients in _CLIENTS:
                    measure(server, requests, plan.warm_up(server, len(order), clients))
                    cells[service.name, clients].append(measure(server, requests, plan.closed(server, order, clients)))
            alone[service.name].append(floor(plan, prepared, service.name, [1]).milliseconds)
    rows, wanted = [], []
    for service in services:
        own = cells[service.name, 1]
        pairs = zip(own, alone[service.name], strict=True)
        times = statistics.median(latency(50)(cell) / encoder for cell, encoder in pairs)
        row = [service.name, f"{statistics.median(alone[service.name]):.2f}", f"{median(own, latency(50)):.2f}"]
        row += [f"{median(own, latency(99)):.2f}", f"{times:.2f}", f"{median(cells[service.name, 16], rate):,.0f}"]
        row += [
            f"{median(own, lambda cell: cell.resident) / 1e6:,.0f} MB",
            f"{statistics.median(startup[service.name]):.1f} s",
        ]
        rows.append(row)
        wanted.append(Target(f"one client, {service.name}: p50 over the encoder's own", times, at_most=1.5))
    header = [
        "service",
        "encoder alone, p50 ms",
        "one client, p50 ms",
        "p99 ms",
        "times the encoder",
        "16 clients, replies/s",
    ]
    recall = (
        "exact" if record.recall is None else f"breadth {record.breadth}, recall@{record.depth} {record.recall:.4f}"
    )
    return f"""\
The {prepared.documents:,} documents of {SET} are repeated up to {plan.documents:,}, and noise of length {JITTER} is added to each vector of length 1, as in the gate's
table. The index is {record.kind}, {recall}. The queries of {SET} come in a closed loop, without a cache, {plan.rounds} rounds, {plan.seconds:g} s a cell. Figures are medians;
ratios are taken within a round. "Encoder alone" is the time of one query, tokenizing included, in a process that does nothing else.

{table([*header, "memory", "first answer after"], rows)}

{targets(wanted)}
"""


def _write(plan: ServingPlan, prepared: Prepared, releases: Path) -> None:
    releases.mkdir(exist_ok=True)
    encoder = OnnxEncoder.load(prepared.release / ENCODER_FOLDER)
    choosing = encoder.encode(prepared.queries[-_CHOOSING:], "query")
    tiled_release(
        prepared.release, np.load(prepared.folder / "corpus" / "vectors.npy"), choosing, plan.documents, releases
    )
