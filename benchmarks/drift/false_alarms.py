"""A million queries of those that were held out: how often an alarm is raised about nothing."""

import numpy as np
from page import table, verdict
from plan import Plan
from scenarios import QUIET_SETS, usual
from traffic import Pool

from retrieval.drift.monitor import Monitor, theta_of

HEADING = "False alarms"
_CHUNK = 20_000


def section(plan: Plan) -> str:
    """The section of the page."""
    rows, total = [], 0
    for name in QUIET_SETS:
        release, ordinary = usual(plan.data, name, plan.work)
        monitor = Monitor(release.reference, theta_of(release.reference, release.manifest.bootstrap.overlap_percentile))
        alarms, highest = run(monitor, ordinary, plan.queries, plan.seed)
        total += alarms
        shares = [f"{highest[alarm.signal.name]:.2f}" for alarm in monitor.of_queries]
        rows.append(
            [name, f"{len(release.reference):,}", f"{len(ordinary.top):,}", f"{plan.queries:,}", alarms, *shares]
        )
    names = [alarm.signal.name for alarm in monitor.of_queries]
    header = ["set", "calibrated on", "held out", "queries drawn", "alarms", *(f"`{name}`" for name in names)]
    return f"""\
Queries that the calibration did not use, drawn with replacement, at the default settings. The last columns are the most evidence
that there ever was, as `taugate_drift_evidence`: 1 is an alarm.

{table(header, rows)}

| target | wanted | measured |  |
| --- | --- | --- | --- |
| alarms in all of them | at most 1 | {total} | {verdict(reached=total <= 1)} |
"""


def run(monitor: Monitor, ordinary: Pool, queries: int, seed: int) -> tuple[int, dict[str, float]]:
    """Alarms, and the most evidence of each signal."""
    rng, alarms = np.random.default_rng(seed), 0
    highest = dict.fromkeys((alarm.signal.name for alarm in monitor.of_queries), 0.0)
    for start in range(0, queries, _CHUNK):
        seen = ordinary.draw(min(_CHUNK, queries - start), rng)
        for row in range(0, len(seen), _CHUNK // 20):  # evidence comes and goes: look often
            alarms += sum(change.on for change in monitor.update(seen.take(slice(row, row + _CHUNK // 20))))
            for alarm in monitor.of_queries:
                name = alarm.signal.name
                highest[name] = max(highest[name], alarm.share_of_threshold)
    return alarms, highest
