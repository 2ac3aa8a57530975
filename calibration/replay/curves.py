"""Two figures of each signal: its evidence over time, and the means of its blocks."""

from collections.abc import Sequence

import numpy as np

from taugate.calibration.charts.axis import Axis
from taugate.calibration.charts.chart import Chart
from taugate.calibration.charts.figure import Figure, Key
from taugate.calibration.charts.time_axis import TimeAxis
from taugate.calibration.replay.replayed import Course, Limits, Moment, Trace
from taugate.calibration.replay.stairs import Span, average, largest, stairs
from taugate.calibration.replay.words import SIGNALS, counted

_ALARM, _OVER = "tau", "uncut"  # marks of the style sheet


def evidence(trace: Trace, course: Course, moments: Sequence[Moment], time: TimeAxis) -> Figure:
    """Evidence over time, clipped at that of an alarm."""
    own = [each for each in moments if each.signal == trace.signal]
    alarms = sum(each.on for each in own)
    most = max(trace.evidence.tolist(), default=0.0)
    reached = "reaches that of an alarm" if alarms else f"is at most {most:.0%} of that of an alarm"
    chart = Chart(
        f"{_name(trace)}-evidence",
        "Evidence of a change",
        f"{SIGNALS[trace.signal].name}: {counted(alarms, 'alarm')}; the evidence {reached}.",
        time,
        Axis(0, 1, "evidence", "percent"),
    )
    chart.level(1.0, "limit")
    first, last = course.present[0].start, course.present[-1].end
    values = np.append(0.0, np.minimum(trace.evidence, 1.0))
    for piece in stairs([first, *course.fifths.tolist()], values, last, course.present, largest):
        chart.steps(piece.xs, piece.ys, "s-topk")
    keys = [Key("line", "s-topk", "evidence"), Key("mark", "limit", "what an alarm takes")]
    return Figure.of(chart, keys + mark(chart, own))


def means(trace: Trace, course: Course, moments: Sequence[Moment], time: TimeAxis, *, baseline: bool) -> Figure:
    """Means of blocks over time, and what is no drift."""
    values = trace.means.tolist()
    said = f"from {values[0]:.1%} to {values[-1]:.1%}" if values else "no block is complete"
    chart = Chart(
        f"{_name(trace)}-means",
        SIGNALS[trace.signal].mean,
        f"Means of blocks: {said}; {trace.allowed.lower:.1%} to {trace.allowed.upper:.1%} is no drift.",
        time,
        Axis.around([*values, *trace.allowed], "mean of each block", "percent"),
    )
    _band(chart, course.present, trace.calibrated, "calibrated")
    keys = [Key("line", "s-topk", "mean of a block"), Key("band", "calibrated", "no drift, by the calibration")]
    if baseline:
        _band(chart, course.present, trace.allowed, "ordinary")
        keys.append(Key("band", "ordinary", "no drift, with the baseline"))
    if course.blocks:
        starts, end = [block.start for block in course.blocks], course.blocks[-1].end
        for piece in stairs(starts, trace.means, end, course.present, average):
            chart.steps(piece.xs, piece.ys, "s-topk")
    return Figure.of(chart, keys + mark(chart, [each for each in moments if each.signal == trace.signal]))


def mark(
    chart: Chart, moments: Sequence[Moment], begins: str = "an alarm begins", over: str = "it is over"
) -> list[Key]:
    """Draw where alarms begin and end; what that adds to the legend, in the words given."""
    for each in moments:
        chart.upright(each.at, "", _ALARM if each.on else _OVER)
    words = ((True, _ALARM, begins), (False, _OVER, over))
    return [Key("mark", kind, text) for on, kind, text in words if any(each.on == on for each in moments)]


def _band(chart: Chart, present: Sequence[Span], limits: Limits, series: str) -> None:
    for start, end in present:
        chart.band([start, end], [limits.lower] * 2, [limits.upper] * 2, series)


def _name(trace: Trace) -> str:
    return trace.signal.replace("_", "-")
