"""Repeat the closed loop on a corpus fifty times as large."""

from benchmarks.markdown import Target, table, targets
from benchmarks.serving.cells import latency, median, rate, ratio
from benchmarks.serving.closed import TIMES, services_of, take_turns
from benchmarks.serving.plan import ServingPlan
from taugate.retrieval.release.verify import verify

HEADING = "A larger corpus"
SETS = ("squad_v2_dev", "mixed_large")
_CLIENTS = 16
_WITHIN = 0.15


def section(plan: ServingPlan) -> str:
    """Measure each service on the larger corpus."""
    rows, ratios, kinds = [], {}, []
    for name in SETS:
        prepared = plan.prepared(name)
        cells = take_turns(plan, prepared, prepared.services(), (_CLIENTS,), floors=False).cells
        names = services_of(cells)
        kinds.append(f"{name}: {verify(prepared.release).index.kind}")
        for service in names:
            own = cells[service, _CLIENTS]
            row = [
                name,
                f"{prepared.documents:,}",
                service,
                f"{median(own, rate):,.0f}",
                f"{median(own, latency(99)):,.1f}",
            ]
            for taugate in TIMES:
                if service in TIMES or taugate not in names:
                    row.append("")
                    continue
                ratios[name, taugate, service] = ratio(cells[taugate, _CLIENTS], own, rate)
                row.append(f"{ratios[name, taugate, service]:.1f}")
            rows.append(row)
    small, big = SETS
    wanted = [
        Target(
            f"{taugate} over {peer}: the ratio on {big} as a share of that on {small}",
            ratios[big, taugate, peer] / ratios[small, taugate, peer],
            at_least=1 - _WITHIN,
            at_most=1 + _WITHIN,
        )
        for name, taugate, peer in ratios
        if name == big and (small, taugate, peer) in ratios
    ]
    header = ["set", "documents", "service", "replies/s", "p99 ms", "float32: times the replies", "int8: the same"]
    return f"""\
{_CLIENTS} clients in a closed loop ask each set its own queries, without a cache. The services take turns in {plan.rounds} rounds, {plan.seconds:g} s a cell. Figures are
medians; ratios are taken within a round. Taugate uses the index that its gate admits ({"; ".join(kinds)}). The usual service
searches exactly in float32. txtai chooses for itself: an approximate index from 5,000 documents on.

{table(header, rows)}

{targets(wanted)}
"""
