"""Which evidence: beginning anew (CUSUM), the sum over all beginnings (Shiryaev-Roberts), or from the first query on."""

import statistics
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
from page import table
from plan import Plan
from scenarios import SET, scenarios, usual
from traffic import Draw, Pool

from retrieval.drift.effect import Float64
from retrieval.drift.evidence import Evidence
from retrieval.drift.monitor import Monitor, theta_of
from retrieval.release.reader import Release

HEADING = "Which evidence"
_BEFORE = (0, 10_000, 100_000)  # ordinary queries before the change
_CHUNK, _MOST = 500, 20_000


class ShiryaevRoberts(Evidence):
    """M ← (M + 1) · L."""

    def restart(self) -> None:
        """Forget what was seen."""
        self._log = np.full(self._slope.shape, -np.inf)

    def update(self, values: Float64) -> Float64:
        """The logarithm of the largest M after each row."""
        bets = np.cumsum(np.log(self._zero + values[:, :, None] * self._slope), axis=0)
        logs = bets + np.logaddexp.accumulate(np.concatenate([np.logaddexp(self._log, 0.0)[None], -bets[:-1]]), axis=0)
        self._log = logs[-1]
        largest: Float64 = logs.max(axis=(1, 2))
        return largest


class FromTheStart(Evidence):
    """M ← M · L: a betting confidence sequence, which has to win back what it lost before a change."""

    def update(self, values: Float64) -> Float64:
        """The logarithm of the largest M after each row."""
        logs = self._log + np.cumsum(np.log(self._zero + values[:, :, None] * self._slope), axis=0)
        self._log = logs[-1]
        largest: Float64 = logs.max(axis=(1, 2))
        return largest


def section(plan: Plan) -> str:
    """The section of the page."""
    release, ordinary = usual(plan.data, SET, plan.work)
    changes = [each for each in scenarios(plan.data, plan.work) if each.most]
    rows = []
    for name, kind in (("CUSUM", Evidence), ("Shiryaev-Roberts", ShiryaevRoberts), ("from the start", FromTheStart)):
        for before in _BEFORE:
            medians = [_median(kind, release, ordinary, each.draw, before, plan) for each in changes]
            rows.append([name, f"{before:,}", *("none" if np.isinf(each) else f"{each:,.0f}" for each in medians)])
    header = ["evidence", "ordinary queries before", *(each.name for each in changes)]
    return f"""\
The same signals and the same bound on false alarms; queries from the change to the first alarm, median of {plan.runs} runs, given up after
{_MOST:,}.

{table(header, rows)}
"""


def _median(kind: type[Evidence], release: Release, ordinary: Pool, draw: Draw, before: int, plan: Plan) -> float:
    delays = []
    percentile = release.manifest.bootstrap.overlap_percentile
    for run in range(plan.runs):
        rng = np.random.default_rng([plan.seed, run])
        with patch("retrieval.drift.alarm.Evidence", kind):
            monitor = Monitor(release.reference, theta_of(release.reference, percentile))
        for _ in range(0, before, _CHUNK * 10):
            monitor.update(ordinary.draw(_CHUNK * 10, rng))
        delays.append(next(_delays(monitor, draw, rng), np.inf))
    return statistics.median(delays)


def _delays(monitor: Monitor, draw: Draw, rng: np.random.Generator) -> Iterator[float]:
    for start in range(0, _MOST, _CHUNK):
        yield from (start + change.row + 1.0 for change in monitor.update(draw(_CHUNK, rng)) if change.on)
