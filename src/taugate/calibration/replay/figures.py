"""Figures of a replay: evidence and means of each signal over time, and the best similarity of the queries."""

from collections.abc import Sequence

import numpy as np

from taugate.calibration.charts.chart import Axis, Chart, Figure, LegendEntry
from taugate.calibration.replay.replayed import (
    SIGNALS,
    AlarmChange,
    MeanLimits,
    SignalTrace,
    StreamCourse,
    TimeSpan,
    count_of,
    group_maxima,
    group_means,
    step_segments,
)
from taugate.calibration.replay.time_axis import TimeAxis
from taugate.drift.observations import Float64, Observations
from taugate.retrieval.release.query_arrays import Reference

_ALARM, _OVER = "tau", "uncut"  # marks of the style sheet
_PERCENTILES = (5, 50, 95)
_MIN_QUERIES, _MAX_POINTS = 50, 120  # queries per percentile drawn, and number of points drawn


def evidence_figure(trace: SignalTrace, course: StreamCourse, moments: Sequence[AlarmChange], time: TimeAxis) -> Figure:
    """Draw a signal's evidence over time, clipped at the level of an alarm.

    Args:
        trace: Trace of the signal.
        course: Course of its stream.
        moments: Changes of all alarms.
        time: The x axis.
    """
    changes = [change for change in moments if change.signal == trace.signal]
    alarms = sum(change.on for change in changes)
    max_evidence = max(trace.evidence.tolist(), default=0.0)
    level = "reaches the level of an alarm" if alarms else f"is at most {max_evidence:.0%} of the level of an alarm"
    chart = Chart(
        f"{_name(trace)}-evidence",
        "Evidence of a change",
        f"{SIGNALS[trace.signal].name}: {count_of(alarms, 'alarm')}; the evidence {level}.",
        time,
        Axis(0, 1, "evidence", "percent"),
    )
    chart.level(1.0, "limit")
    first, last = course.present[0].start, course.present[-1].end
    values = np.append(0.0, np.minimum(trace.evidence, 1.0))
    for piece in step_segments([first, *course.fifths.tolist()], values, last, course.present, group_maxima):
        chart.steps(piece.xs, piece.ys, "s-topk")
    keys = [LegendEntry("line", "s-topk", "evidence"), LegendEntry("mark", "limit", "level of an alarm")]
    return Figure.from_chart(chart, keys + mark_alarms(chart, changes))


def block_means_figure(
    trace: SignalTrace, course: StreamCourse, moments: Sequence[AlarmChange], time: TimeAxis, *, baseline: bool
) -> Figure:
    """Draw a signal's block means over time, with the limits between which they count as no drift.

    Args:
        trace: Trace of the signal.
        course: Course of its stream.
        moments: Changes of all alarms.
        time: The x axis.
        baseline: Whether a baseline widens the limits.
    """
    values = trace.means.tolist()
    summary = f"from {values[0]:.1%} to {values[-1]:.1%}" if values else "no block is complete"
    chart = Chart(
        f"{_name(trace)}-means",
        SIGNALS[trace.signal].mean,
        f"Means of blocks: {summary}; {trace.allowed.lower:.1%} to {trace.allowed.upper:.1%} is no drift.",
        time,
        Axis.around([*values, *trace.allowed], "mean of each block", "percent"),
    )
    _band(chart, course.present, trace.calibrated, "calibrated")
    keys = [
        LegendEntry("line", "s-topk", "mean of a block"),
        LegendEntry("band", "calibrated", "no drift, by the calibration"),
    ]
    if baseline:
        _band(chart, course.present, trace.allowed, "ordinary")
        keys.append(LegendEntry("band", "ordinary", "no drift, with the baseline"))
    if course.blocks:
        starts, end = [block.start for block in course.blocks], course.blocks[-1].end
        for piece in step_segments(starts, trace.means, end, course.present, group_means):
            chart.steps(piece.xs, piece.ys, "s-topk")
    return Figure.from_chart(
        chart, keys + mark_alarms(chart, [change for change in moments if change.signal == trace.signal])
    )


def best_similarity_figure(
    queries: Observations,
    reference: Reference,
    present: Sequence[TimeSpan],
    moments: Sequence[AlarmChange],
    time: TimeAxis,
) -> Figure:
    """Draw percentiles of the best similarity over time, with the times in which any signal had an alarm.

    Args:
        queries: Queries of the log.
        reference: Distributions of the calibration.
        present: Spans of time with queries.
        moments: Changes of all alarms.
        time: The x axis.
    """
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
        LegendEntry("line", "s-topk", "median of the log"),
        LegendEntry("band", "s-topk", "5th to 95th percentile of the log"),
        LegendEntry("mark", "limit", "5th, 50th and 95th percentile at calibration"),
    ]
    return Figure.from_chart(
        chart, keys + mark_alarms(chart, _any(moments), "the first alarm begins", "all alarms are over")
    )


def mark_alarms(
    chart: Chart, moments: Sequence[AlarmChange], begins: str = "an alarm begins", over: str = "it is over"
) -> list[LegendEntry]:
    """Draw the times at which alarms begin and end; returns the legend entries.

    Args:
        chart: The chart to draw on.
        moments: Changes of alarms.
        begins: Legend text for a beginning.
        over: Legend text for an end.
    """
    for change in moments:
        chart.upright(change.at, "", _ALARM if change.on else _OVER)
    words = ((True, _ALARM, begins), (False, _OVER, over))
    return [LegendEntry("mark", kind, text) for on, kind, text in words if any(change.on == on for change in moments)]


def _band(chart: Chart, present: Sequence[TimeSpan], limits: MeanLimits, series: str) -> None:
    for start, end in present:
        chart.band([start, end], [limits.lower] * 2, [limits.upper] * 2, series)


def _name(trace: SignalTrace) -> str:
    return trace.signal.replace("_", "-")


def _piece(queries: Observations, span: TimeSpan) -> tuple[list[float], Float64]:
    """Return times and percentiles, (p, 3), of the queries in a span; the first and last extend to its ends."""
    start, stop = np.searchsorted(queries.at, span.start), np.searchsorted(queries.at, span.end, side="right")
    count = int(stop - start)
    points = min(1 + count // _MIN_QUERIES, max(1, _MAX_POINTS * count // len(queries)))
    groups = np.array_split(np.arange(start, stop), points)
    levels = np.array([np.percentile(queries.top[rows, 0], _PERCENTILES) for rows in groups])
    at = [float(queries.at[rows].mean()) for rows in groups]
    return [span.start, *at, span.end], np.concatenate([levels[:1], levels, levels[-1:]])


def _any(moments: Sequence[AlarmChange]) -> list[AlarmChange]:
    """Return the changes at which the first of all alarms begins or the last one ends."""
    on: set[str] = set()
    outer = []
    for change in moments:
        before = bool(on)
        on ^= {change.signal}
        if bool(on) != before:
            outer.append(change)
    return outer
