"""The best similarity of the queries over time, beside that of the calibration."""

from collections.abc import Sequence

import numpy as np

from taugate.calibration.charts.axis import Axis
from taugate.calibration.charts.chart import Chart
from taugate.calibration.charts.figure import Figure, Key
from taugate.calibration.charts.time_axis import TimeAxis
from taugate.calibration.replay.curves import mark
from taugate.calibration.replay.replayed import Moment
from taugate.calibration.replay.stairs import Span
from taugate.drift.effect import Float64
from taugate.drift.observations import Observations
from taugate.retrieval.release.reference import Reference

_PERCENTILES = (5, 50, 95)
_FEWEST, _MOST_POINTS = 50, 120  # queries of a percentile that is drawn, and how many of these there are


def best(
    queries: Observations, reference: Reference, present: Sequence[Span], moments: Sequence[Moment], time: TimeAxis
) -> Figure:
    """Its percentiles, with the times in which any signal had an alarm."""
    pieces = [_piece(queries, span) for span in present]
    live = np.concatenate([levels for _, levels in pieces])
    then = np.percentile(reference.top[:, 0], _PERCENTILES)
    chart = Chart(
        "best",
        "Best similarity of each query",
        f"Its median goes from {live[0, 1]:.3f} to {live[-1, 1]:.3f}; at calibration it was {then[1]:.3f}.",
        time,
        Axis.around([*live.ravel().tolist(), *then.tolist()], "similarity"),
    )
    for at, levels in pieces:
        chart.band(at, levels[:, 0].tolist(), levels[:, 2].tolist(), "s-topk")
    for level in then.tolist():
        chart.level(level, "limit")
    for at, levels in pieces:
        chart.line(at, levels[:, 1].tolist(), "s-topk")
    keys = [
        Key("line", "s-topk", "median of the log"),
        Key("band", "s-topk", "5th to 95th percentile of the log"),
        Key("mark", "limit", "5th, 50th and 95th percentile at calibration"),
    ]
    return Figure.of(chart, keys + mark(chart, _any(moments), "the first alarm begins", "all alarms are over"))


def _piece(queries: Observations, span: Span) -> tuple[list[float], Float64]:
    """Times and percentiles, (p, 3), of queries without a gap; the first and the last hold to the ends of the span."""
    start, stop = np.searchsorted(queries.at, span.start), np.searchsorted(queries.at, span.end, side="right")
    count = int(stop - start)
    points = min(1 + count // _FEWEST, max(1, _MOST_POINTS * count // len(queries)))
    groups = np.array_split(np.arange(start, stop), points)
    levels = np.array([np.percentile(queries.top[rows, 0], _PERCENTILES) for rows in groups])
    at = [float(queries.at[rows].mean()) for rows in groups]
    return [span.start, *at, span.end], np.concatenate([levels[:1], levels, levels[-1:]])


def _any(moments: Sequence[Moment]) -> list[Moment]:
    """The moments at which the first of all alarms begins, and the last one is over."""
    on: set[str] = set()
    outer = []
    for each in moments:
        before = bool(on)
        on ^= {each.signal}
        if bool(on) != before:
            outer.append(each)
    return outer
