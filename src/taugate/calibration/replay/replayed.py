"""Replay a log through the alarms of a release, and record the course of each signal."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.replay.log import ReleaseLog
from taugate.drift.monitor import FifthResult, Monitor, Stream
from taugate.drift.observations import Columns, Float64

_MIN_GAP_BLOCKS = 10  # a gap is longer than this many median block durations,
_MIN_GAP_SHARE = 1 / 50  # and than this share of the log, so that it is visible
_PLACES = 600  # number of distinguishable positions on the time axis

Starts = NDArray[np.intp]  # indices at which groups of values begin
Merge = Callable[[Float64, Starts], Float64]


class TimeSpan(NamedTuple):
    """A span of time, from `start` to `end`, in Unix time."""

    start: float
    end: float


def present_spans(at: Float64, blocks: Sequence[TimeSpan]) -> list[TimeSpan]:
    """Return the spans of time without gaps.

    Args:
        at: Unix times of the queries or judgements, (n,) ascending, n ≥ 1.
        blocks: Time spans of their complete blocks, if any.
    """
    log_span = TimeSpan(float(at[0]), float(at[-1]))
    usual = float(np.median([block.end - block.start for block in blocks or [log_span]]))
    cuts = np.flatnonzero(np.diff(at) > max(_MIN_GAP_BLOCKS * usual, _MIN_GAP_SHARE * (log_span.end - log_span.start)))
    starts, ends = at[np.append(0, cuts + 1)], at[np.append(cuts, len(at) - 1)]
    return [TimeSpan(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


@dataclass(frozen=True)
class StepSegment:
    """A part of a staircase without a gap; each of `ys` holds from its place in `xs` to the next."""

    xs: list[float]
    ys: list[float]


def group_maxima(values: Float64, starts: Starts) -> Float64:
    """Return the largest value of each group of `values`, (n,)."""
    maxima: Float64 = np.maximum.reduceat(values, starts)
    return maxima


def group_means(values: Float64, starts: Starts) -> Float64:
    """Return the mean of each group of `values`, (n,)."""
    mean: Float64 = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    return mean


def step_segments(
    at: Sequence[float], values: Float64, end: float, present: Sequence[TimeSpan], merge: Merge
) -> list[StepSegment]:
    """Split a staircase at its gaps: values[i] holds from at[i] to at[i + 1], the last one to `end`.

    Steps too close to distinguish become one step, with the value that `merge` returns for them.

    Args:
        at: Unix times, (n,).
        values: (n,).
        end: End of the last step.
        present: Spans without gaps; each becomes a segment.
        merge: Combines values by group.
    """
    if not len(values):
        return []
    times = np.array(at)
    places = np.floor((times - times[0]) / max(end - times[0], 1e-9) * _PLACES)
    starts = np.flatnonzero(np.append(True, np.diff(places) > 0))
    times, values = times[starts], merge(values, starts)
    pieces = []
    for span in present:
        left, right = max(span.start, float(times[0])), min(span.end, end)
        if left > right:
            continue
        within = np.flatnonzero((times > left) & (times <= right))
        rows = [int(np.searchsorted(times, left, side="right")) - 1, *within.tolist()]
        xs = [left, *times[within].tolist(), right]
        pieces.append(StepSegment(xs, [*values[rows].tolist(), float(values[rows[-1]])]))
    return pieces


@dataclass(frozen=True)
class SignalWords:
    """Display texts of a signal.

    Attributes:
        name: Name of the signal.
        mean: Description of a block mean.
        things: What a block counts, in the plural.
    """

    name: str
    mean: str
    things: str = "queries"


SIGNALS = {
    "topk_similarity": SignalWords(
        "Similarities of the top-K", "Share of best similarities at or below the calibration's median"
    ),
    "roe": SignalWords("Random documents (ROE)", "Share of random documents above θ"),
    "empty_responses": SignalWords("Searches with no result", "Share of searches with no result"),
    "dropped_share": SignalWords("Dropped results", "Share of the top-K that the threshold drops"),
    "coe": SignalWords("Documents judged relevant (COE)", "Share of judged documents above θ", "judgements"),
}


def count_of(number: int, thing: str) -> str:
    """Format a count with its noun, which `thing` gives in the singular."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def format_utc(at: float) -> str:
    """Format a Unix time in UTC, without naming the time zone."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


ColumnsT = TypeVar("ColumnsT")


@dataclass(frozen=True)
class AlarmChange:
    """An alarm that begins or ends.

    Attributes:
        signal: Name of the signal.
        at: Unix time.
        after: Number of queries (for COE, judgements) of the log up to then.
        on: Whether the alarm begins.
    """

    signal: str
    at: float
    after: int
    on: bool


class MeanLimits(NamedTuple):
    """Limits in 0…1 between which the mean of a block counts as no drift."""

    lower: float
    upper: float


@dataclass(frozen=True)
class SignalTrace:
    """The course of one signal.

    Attributes:
        signal: Name of the signal.
        evidence: (f,) evidence after each fifth of a block, as a share of an alarm's.
        means: (b,) block means of the variable that is drawn.
        calibrated: Limits by the calibration.
        allowed: Limits by the calibration and the baseline, if any.
    """

    signal: str
    evidence: Float64
    means: Float64
    calibrated: MeanLimits
    allowed: MeanLimits


@dataclass(frozen=True)
class StreamCourse:
    """The course of a stream, queries or judgements, and of the signals that are tested in its blocks.

    Attributes:
        fifths: (f,) Unix times at which a fifth of a block was complete.
        blocks: Time spans of the complete blocks.
        sizes: Number of different queries or judgements in each block.
        size: Size of the open block.
        distinct: Number of different queries or judgements in total.
        present: Spans of time without gaps.
        traces: Traces of its signals.
    """

    fifths: Float64
    blocks: list[TimeSpan]
    sizes: list[int]
    size: int
    distinct: int
    present: list[TimeSpan]
    traces: list[SignalTrace]


@dataclass(frozen=True)
class ReplayedLog:
    """The outcome of a replay.

    Attributes:
        moments: Changes of alarms, ordered by time.
        queries: Course of the queries.
        judged: Course of the judgements, None if there are none.
    """

    moments: list[AlarmChange]
    queries: StreamCourse
    judged: StreamCourse | None


def replay(log: ReleaseLog, monitor: Monitor, calibrated: Monitor) -> ReplayedLog:
    """Replay a log as the service would have processed it.

    Args:
        log: Queries and judgements.
        monitor: The alarms.
        calibrated: The monitor without the baseline; `monitor` itself if there is none.
    """
    moments: list[AlarmChange] = []
    queries = _course(log.queries, monitor.process(log.queries), monitor.queries, calibrated.queries, moments)
    judged = None
    if len(log.judged):
        results = monitor.process_judgements(log.judged)
        judged = _course(log.judged, results, monitor.feedback, calibrated.feedback, moments)
    return ReplayedLog(sorted(moments, key=lambda moment: moment.at), queries, judged)


def _course(
    seen: Columns,
    results: Iterator[FifthResult],
    stream: Stream[ColumnsT],
    calibrated: Stream[ColumnsT],
    moments: list[AlarmChange],
) -> StreamCourse:
    """Process a stream; changes of alarms are added to `moments`."""
    shown = [_telling(columns) for columns in stream.columns]
    fifths: list[float] = []
    evidence: list[list[float]] = []
    means: list[Float64] = []
    blocks: list[TimeSpan] = []
    sizes: list[int] = []
    first = size = 0  # of the open block
    for result in results:
        row = result.fifth.row
        at = float(seen.at[row])
        moments += [AlarmChange(change.signal, at, row + 1, change.on) for change in result.changes]
        fifths.append(at)
        evidence.append([alarm.share_of_threshold for alarm in stream.alarms])
        size += result.fifth.queries
        if result.fifth.block is not None:
            means.append(result.fifth.block[shown])
            blocks.append(TimeSpan(float(seen.at[first]), at))
            sizes.append(size)
            first, size = row + 1, 0
    shares, drawn = np.reshape(evidence, (-1, len(shown))), np.reshape(means, (-1, len(shown)))
    traces = [
        SignalTrace(
            alarm.signal,
            shares[:, index],
            drawn[:, index],
            _limits(calibrated, index, shown[index]),
            _limits(stream, index, shown[index]),
        )
        for index, alarm in enumerate(stream.alarms)
    ]
    distinct = len(np.unique(seen.key))
    return StreamCourse(
        np.array(fifths), blocks, sizes, stream.blocks.size, distinct, present_spans(seen.at, blocks), traces
    )


def _telling(columns: slice) -> int:
    """Return the column of a signal that is drawn: its only one, or whether the best similarity is below the median.

    `topk_similarity` has a column for the best and the K-th similarity at each of five percentiles, the median third.
    """
    width: int = columns.stop - columns.start
    return int(columns.start) + 2 * (width // 5)


def _limits(stream: Stream[ColumnsT], index: int, column: int) -> MeanLimits:
    lower, upper = stream.alarms[index].bounds
    place = column - stream.columns[index].start
    return MeanLimits(float(lower[place]), float(upper[place]))
