"""Measure memory after many queries that never repeat."""

from dataclasses import replace

from benchmarks.checkout import quickstart
from benchmarks.markdown import Target, table, targets
from benchmarks.reliability.attacks.memory import BATCH, FULL, MAX_GROWTH, resident
from benchmarks.reliability.plan import ReliabilityPlan
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate

HEADING = "Distinct queries"
_LOOKS = 20  # rows of the table


def section(plan: ReliabilityPlan) -> str:
    """Send queries of which no two are equal, and report memory along the way."""
    every = max(FULL // 5, plan.distinct // 100)
    service = taugate(quickstart(plan.work), "float32", cache=True)
    alone = replace(service, environment=service.environment | {"TAUGATE_WORKERS": "1"})
    with Server(alone) as server:
        seen = resident(server, plan.distinct, every)
    after = {asked: size for asked, size in seen.items() if asked >= FULL}
    first = next(iter(after.values()))
    growth = max(abs(size / first - 1) for size in after.values())
    shown = [*seen][:: max(1, len(seen) // _LOOKS)]
    rows = [[f"{asked:,}", f"{seen[asked] / 2**20:,.0f}", f"{seen[asked] / first - 1:+.1%}"] for asked in shown]
    return f"""\
One worker with default settings answers {plan.distinct:,} queries of which no two are equal, {BATCH} to a request, one request after the other. It serves the
sample data set with the default encoder. The table has resident memory, compared with that after {FULL:,} queries, when every cache is
full.

{table(["queries", "MiB", "compared"], rows)}

{targets([Target(f"largest change after {FULL:,} queries", 100 * growth, at_most=100 * MAX_GROWTH, unit=" %")])}
"""
