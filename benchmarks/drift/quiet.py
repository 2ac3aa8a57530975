"""Count false alarms in traffic without drift, in the orders in which real traffic comes."""

import numpy as np

from benchmarks.drift.patterns import Pattern, bursts, circle, independent, load_test, moved, repeated, zipf
from benchmarks.drift.plan import DriftPlan
from benchmarks.drift.worlds import SETS, DriftWorld, world
from benchmarks.markdown import Target, table, targets
from taugate.drift.monitor import Monitor
from taugate.drift.observations import Observations
from taugate.drift.signals import Rules

HEADING = "Traffic without drift"


def section(plan: DriftPlan) -> str:
    """Replay every pattern of traffic without drift and count alarms."""
    worlds = [world(plan.data, name, plan.work) for name in SETS]
    queries = -(-plan.queries // len(worlds))  # of each set
    rows, alarms = [], 0
    for name in silent(worlds[0]):
        begun_in_all, highest = 0, 0.0
        for here in worlds:
            seen = traffic(here, silent(here)[name], queries, plan.seed)
            begun, most = watch(here.monitor(), seen)
            begun_in_all, highest = begun_in_all + begun, max(highest, most)
        alarms += begun_in_all
        rows.append([name, f"{queries * len(worlds):,}", begun_in_all, f"{highest:.2f}"])
    header = ["traffic", "queries", "alarms", "most evidence"]
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
Nothing drifts here, so every alarm is a false one. The queries were held out when the releases of {", ".join(SETS)} were calibrated.
They come in the orders in which real traffic comes. Except in the rows with off-topic queries, the
marginal distribution stays as it is.

*Topics* are clusters of the queries' embeddings (k-means with 30 clusters, or fewer if a cluster would have fewer than 50 queries).
*Articles* are the titles or papers of the documents that answer the queries. *Most evidence* is the highest value that
`taugate_drift_evidence` reached: 1 is an alarm. [Research](../decisions.md#drift) has the alarms of two other detectors on this traffic.

{table(header, rows)}

Alarms in bursts of 1,000 queries by set, with the most evidence in brackets:

{table(["bursts", "B", *SETS], longer)}

{targets([Target("alarms in all rows of the first table", alarms, at_most=1)])}
"""


def traffic(here: DriftWorld, pattern: Pattern, queries: int, seed: int) -> Observations:
    """Ordinary queries and, if the pattern has them, strange ones."""
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
