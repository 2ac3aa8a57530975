"""Count alarms under ordinary swings of traffic, with and without a baseline of one week."""

from dataclasses import replace
from itertools import product

import numpy as np

from benchmarks.drift.patterns import DAY, Pattern, days
from benchmarks.drift.plan import DriftPlan
from benchmarks.drift.quiet import watch
from benchmarks.drift.worlds import SETS, DriftWorld, world
from benchmarks.markdown import Target, table, targets
from taugate.drift.monitor import Baseline
from taugate.drift.observations import Observations

HEADING = "Day and night, weekday and Sunday"
_SETS = tuple(name for name in SETS if name != "cosqa")  # whose halves of 150 queries do not fill a block
_SWINGS = (
    ("day and night, half a swing", 0.5, False),
    ("day and night", 1.0, False),
    ("weekday and Sunday", 1.0, True),
)
_HALVES = ("topics", "queries")


def section(plan: DriftPlan) -> str:
    """Replay daily and weekly swings and count the alarms."""
    worlds = [world(plan.data, name, plan.work) for name in _SETS]
    queries = max(3 * 7 * DAY, -(-plan.queries // len(worlds)))  # of each set, the first week apart
    rows, with_baseline = [], 0
    for halves, (name, swing, sundays) in product(_HALVES, _SWINGS):
        found: dict[str, list[str]] = {"no": [], "one week": []}
        for here in worlds:
            learnt, rest = _weeks(here, days(daily_half(here, halves), swing, sundays=sundays), queries, plan.seed)
            baseline = Baseline.learn(here.release.manifest.release_id, learnt, here.monitor())
            for kind, monitor in (("no", here.monitor()), ("one week", here.monitor(baseline=baseline))):
                alarms, most = watch(monitor, rest)
                found[kind].append(f"{alarms} ({most:.2f})")
                with_baseline += alarms * (kind == "one week")
        rows += [[name, f"easier {halves}", kind, *cells] for kind, cells in found.items()]
    return f"""\
People ask other things by night than by day. Here {DAY:,} queries a day come from two halves of the queries. The halves are as different
as possible: the topics, or the single queries, with the higher best similarities come by day, the others by night.

- *Day and night* is a full swing: only the one half at noon, and only the other at midnight.
- *Half a swing* is three quarters of the one half and a quarter of the other.
- *Weekday and Sunday*: all queries of a Sunday are of the night's half, and those of other days of the day's.

The baseline is learnt from the first week. Cells have the alarms in the {queries:,} queries after it, and the most evidence in brackets.
cosqa is left out: half of its 300 held-out queries do not fill a block of 200.

{table(["traffic", "by day", "baseline", *_SETS], rows)}

{targets([Target("alarms with a baseline", with_baseline, at_most=0)])}
"""


def _weeks(here: DriftWorld, pattern: Pattern, queries: int, seed: int) -> tuple[Observations, Observations]:
    """The first week, and what comes after it."""
    rng = np.random.default_rng(seed)
    week = 7 * DAY
    seen = here.pool.seen(pattern(week + queries, rng), rng)
    seen = replace(seen, at=np.arange(len(seen)) * 86400.0 / DAY)
    return seen.take(slice(week)), seen.take(slice(week, None))


def daily_half(here: DriftWorld, halves: str) -> np.ndarray:
    """Mark the queries of the day's half: those with the higher best similarities, by topic or by query."""
    best = here.pool.top[:, 0]
    if halves == "queries":
        return best > np.median(best)
    order = np.argsort([-best[here.topics == topic].mean() for topic in range(here.topics.max() + 1)])
    by_day = order[np.cumsum(np.bincount(here.topics)[order]) <= len(best) / 2]
    return np.isin(here.topics, by_day)
