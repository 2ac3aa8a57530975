"""How many queries it takes until a change is an alarm, beside alarms as people write them."""

import statistics
from collections import Counter

import numpy as np
from page import table
from plan import Plan
from rivals import RIVALS, Rival
from scenarios import SET, scenarios, usual
from traffic import Draw, Pool

from retrieval.drift.monitor import Monitor, theta_of
from retrieval.release.reader import Release

HEADING = "Detection"
_CHUNK, _MOST = 500, 20_000  # queries at a time, and before a run is given up


def section(plan: Plan) -> str:
    """The section of the page."""
    release, ordinary = usual(plan.data, SET, plan.work)
    quiet = {rival: _quiet_threshold(rival, release, ordinary, plan) for rival in RIVALS}
    rows, targets = [], []
    for scenario in scenarios(plan.data, plan.work):
        delays, signals = _ours(scenario.draw, release, plan)
        median = statistics.median(delays)
        others = [_median_of(rival, quiet[rival], scenario.draw, release, ordinary, plan) for rival in RIVALS]
        first = Counter(signals).most_common(1)[0][0] if signals else "–"
        rows.append([scenario.name, _count(median), _count(max(delays)), first, *map(_count, others)])
        if scenario.most:
            reached = "reached" if median <= scenario.most else "**not reached**"
            targets.append([f"{scenario.name}: median", f"at most {scenario.most:,}", _count(median), reached])
    names = [rival.name for rival in RIVALS]
    header = ["change", "median", "latest", "signal", *(f"{name}: median" for name in names)]
    thresholds = "; ".join(f"{rival.name} {threshold:.3f}" for rival, threshold in quiet.items())
    return f"""\
A release of {SET} at the default settings; the change is there from the first query on. Queries to the first alarm, {plan.runs} runs, given
up after {_MOST:,}. Beside it fixed thresholds on the distance of the best similarities of the last queries from the calibration,
looked at every 50 queries, the window full of ordinary queries when the change comes. Their thresholds are the largest distance
within {plan.queries:,} held-out queries, so that they are as quiet there as the alarms of this service ({thresholds}); they
were chosen on the very traffic that they are compared on.

{table(header, rows)}

{table(["target", "wanted", "measured", ""], targets)}
"""


def _ours(draw: Draw, release: Release, plan: Plan) -> tuple[list[float], list[str]]:
    """Delay of each run, and the signal that was first."""
    delays, signals = [], []
    percentile = release.manifest.bootstrap.overlap_percentile
    for run in range(plan.runs):
        rng = np.random.default_rng([plan.seed, run])
        monitor = Monitor(release.reference, theta_of(release.reference, percentile))
        delay = np.inf
        for start in range(0, _MOST, _CHUNK):
            begun = [change for change in monitor.update(draw(_CHUNK, rng)) if change.on]
            if begun:
                delay = float(start + begun[0].row + 1)
                signals.append(begun[0].signal)
                break
        delays.append(delay)
    return delays, signals


def _quiet_threshold(rival: Rival, release: Release, ordinary: Pool, plan: Plan) -> float:
    """The least threshold that raises no alarm in so many ordinary queries."""
    rng, best = np.random.default_rng(plan.seed), release.reference.top[:, 0]
    step, highest = 50_000, 0.0
    for start in range(0, plan.queries, step):
        highest = max(highest, float(rival.looks(ordinary.draw(min(step, plan.queries - start), rng), best).max()))
    return highest


def _median_of(rival: Rival, threshold: float, draw: Draw, release: Release, ordinary: Pool, plan: Plan) -> float:
    delays = []
    for run in range(plan.runs):
        rng = np.random.default_rng([plan.seed, run])
        before = ordinary.draw(rival.window, rng)
        delays.append(rival.delay(before, draw(_MOST, rng), release.reference.top[:, 0], threshold))
    return statistics.median(delays)


def _count(queries: float) -> str:
    return "none" if np.isinf(queries) else f"{queries:,.0f}"
