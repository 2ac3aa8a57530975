"""Traffic without drift, in the orders in which real traffic comes: how often an alarm is raised about nothing."""

import numpy as np

from benchmarks.drift import rivals
from benchmarks.drift.patterns import Pattern, bursts, circle, independent, load_test, moved, repeated, zipf
from benchmarks.drift.plan import DriftPlan
from benchmarks.drift.worlds import SETS, DriftWorld, world
from benchmarks.markdown import Target, table, targets
from taugate.drift.monitor import Monitor
from taugate.drift.observations import Observations
from taugate.drift.rules import Rules

HEADING = "Traffic without drift"


def section(plan: DriftPlan) -> str:
    """Measure the section and return its Markdown."""
    worlds = [world(plan.data, name, plan.work) for name in SETS]
    queries = -(-plan.queries // len(worlds))  # of each set
    limits = [rivals.quiet_threshold(here, queries, plan.seed) for here in worlds]
    rows, alarms = [], 0
    for name in silent(worlds[0]):
        ours, before, ks, highest = 0, 0, 0, 0.0
        for here, limit in zip(worlds, limits, strict=True):
            seen = traffic(here, silent(here)[name], queries, plan.seed)
            begun, most = watch(here.monitor(), seen)
            ours, highest = ours + begun, max(highest, most)
            before += here.per_query().alarms(seen)
            ks += rivals.alarms(here, seen, limit)
        alarms += ours
        rows.append([name, f"{queries * len(worlds):,}", ours, f"{highest:.2f}", before, ks])
    header = ["traffic", "queries", "alarms", "most evidence", "alarms, query by query", "alarms, KS of the last 1,000"]
    longer = []
    for groups in ("topics", "articles"):
        for block in (200, 1000, "auto"):
            found = [
                watch(
                    here.monitor(Rules(block=block)),
                    traffic(here, bursts(getattr(here, groups), 1000), queries, plan.seed),
                )
                for here in worlds
            ]
            longer.append([f"by {groups[:-1]}", block, *(f"{begun} ({most:.2f})" for begun, most in found)])
    return f"""\
Releases of {", ".join(SETS)} at the default settings, and queries that these calibrations did not use. Topics are clusters of the
queries' embeddings (k-means: 30, fewer where one would have fewer than 50 queries), articles the titles or papers of the documents that
answer them. Every order but those with off-topic queries leaves the marginal distribution as it is. "Most evidence" is the highest
`taugate_drift_evidence` that there ever was: 1 is an alarm. Beside it are the alarms of the e-detector that Taugate had before, which
takes each query by itself, and of a fixed threshold on the Kolmogorov-Smirnov distance, chosen to be silent on as many independent queries.

{table(header, rows)}

Bursts of 1,000 queries, alarms and in brackets the most evidence, by set:

{table(["bursts", "B", *SETS], longer)}

{targets([Target("alarms in all rows of the first table", alarms, at_most=1)])}
"""


def traffic(here: DriftWorld, pattern: Pattern, queries: int, seed: int) -> Observations:
    """Ordinary queries and, where the pattern has them, strange ones."""
    rng = np.random.default_rng(seed)
    return here.pool.beside(here.strange).seen(pattern(queries, rng), rng)


def watch(monitor: Monitor, seen: Observations) -> tuple[int, float]:
    """Count the alarms that begin, and return the largest evidence of any signal."""
    alarms, most = 0, 0.0
    for result in monitor.process(seen):
        alarms += sum(change.on for change in result.changes)
        most = max(most, *(alarm.share_of_threshold for alarm in monitor.alarms))
    return alarms, most


def silent(here: DriftWorld) -> dict[str, Pattern]:
    """List the patterns that must not raise an alarm."""
    n, odd = len(here.pool), np.arange(len(here.pool), len(here.pool) + len(here.strange))
    named = {"independent": independent(n)}
    for length in (20, 50, 200):
        named[f"bursts of {length} by topic"] = bursts(here.topics, length)
        named[f"bursts of {length} by article"] = bursts(here.articles, length)
    return named | {
        "Zipf 1.1": zipf(n),
        "one query repeated 10,000 times": repeated(n),
        "ten queries in a circle": circle(n),
        "ten off-topic queries in a circle": moved(circle(len(here.strange)), n),
        "a load test of ten queries, half of the traffic": load_test(n, 0.5),
        "a load test of ten off-topic queries, half of the traffic": load_test(n, 0.5, odd),
    }
