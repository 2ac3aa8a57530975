"""What a replay found, on a page like the report's."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import numpy as np

from calibration.replay.log import QueryLog
from calibration.replay.replayed import Moment, Replayed, Trace
from calibration.report.axis import Axis
from calibration.report.chart import Chart
from calibration.report.figure import Figure, Key
from calibration.report.template import template
from retrieval.drift.reference import Reference

# For people, in place of the names of the metrics.
SIGNALS = {
    "topk_similarity": "similarities of the top-K",
    "roe": "ROE: random documents",
    "empty_responses": "searches with no result",
    "dropped_share": "share of results dropped",
    "coe": "COE: documents judged relevant",
}
_PERCENTILES = (5, 50, 95)
_LEAST_BLOCK, _MOST_BLOCKS = 50, 120  # queries of a percentile that is drawn, and how many of these there are
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


@dataclass(frozen=True)
class _Time:
    """Unix times as a person counts them since the first query: in the largest unit of which two have gone by."""

    start: float
    unit: float
    axis: Axis

    @classmethod
    def between(cls, start: float, end: float) -> Self:
        unit, name = next((each for each in _UNITS if end - start >= 2 * each[0]), _UNITS[-1])
        return cls(start, unit, Axis.around([0.0, (end - start) / unit], f"{name} since the first query"))

    def of(self, at: float) -> float:
        return (at - self.start) / self.unit


def render(log: QueryLog, replayed: Replayed, reference: Reference, release: str) -> str:
    """The page; `release` is the id of the release that answered."""
    start, end = (float(each) for each in log.queries.at[[0, -1]])
    time = _Time.between(start, end)
    html: str = template("replay.html.j2").render(
        release=release,
        queries=len(log.queries),
        judged=len(log.judged),
        others=log.others,
        first=moment(start),
        last=moment(end),
        alarms=sum(each.on for each in replayed.moments),
        moments=[(moment(each.at), SIGNALS[each.signal], each.after, each.on) for each in replayed.moments],
        best=_best(log, reference, time),
        evidence=[_evidence(trace, replayed.moments, time) for trace in replayed.traces],
    )
    return html


def moment(at: float) -> str:
    """A Unix time for people, in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _best(log: QueryLog, reference: Reference, time: _Time) -> Figure:
    """Percentiles of the best similarity over time, beside those of the calibration."""
    blocks = np.array_split(np.arange(len(log.queries)), min(_MOST_BLOCKS, 1 + len(log.queries) // _LEAST_BLOCK))
    best = log.queries.top[:, 0]
    live = np.array([np.percentile(best[block], _PERCENTILES) for block in blocks])
    at = [time.of(float(log.queries.at[block].mean())) for block in blocks]
    then = np.percentile(reference.top[:, 0], _PERCENTILES)
    chart = Chart(
        "best",
        "Best similarity of each query",
        f"Its median goes from {live[0, 1]:.3f} to {live[-1, 1]:.3f}; at calibration it was {then[1]:.3f}.",
        time.axis,
        Axis.around([*live.ravel().tolist(), *then.tolist()], "similarity"),
    )
    chart.band(at, live[:, 0].tolist(), live[:, 2].tolist(), "s-topk")
    for level in then.tolist():
        chart.level(level, "limit")
    chart.line(at, live[:, 1].tolist(), "s-topk")
    keys = [
        Key("line", "s-topk", "median of the log"),
        Key("band", "s-topk", "5th to 95th percentile of the log"),
        Key("mark", "limit", "5th, 50th and 95th percentile at calibration"),
    ]
    return Figure.of(chart, keys)


def _evidence(trace: Trace, moments: Sequence[Moment], time: _Time) -> Figure:
    """Evidence over time, with the alarms of the signal."""
    own = [each for each in moments if each.signal == trace.signal]
    begun = [each for each in own if each.on]
    chart = Chart(
        trace.signal.replace("_", "-"),
        SIGNALS[trace.signal],
        f"{len(begun)} alarms; the evidence is at most {max(trace.evidence):.0%} of that of an alarm.",
        time.axis,
        Axis(0, 1, "evidence, of an alarm's", "percent"),
    )
    chart.level(1.0, "limit")
    chart.steps([time.of(at) for at in trace.at], list(trace.evidence), "s-topk")
    for each in own:
        chart.upright(time.of(each.at), "alarm" if each.on else "over", "tau" if each.on else "uncut", low=not each.on)
    return Figure.of(chart, [])
