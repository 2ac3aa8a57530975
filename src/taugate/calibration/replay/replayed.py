"""Replay a log through the alarms of a release, and keep the course of each signal."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.replay.log import ReleaseLog
from taugate.drift.monitor import FifthResult, Monitor, Stream
from taugate.drift.observations import Columns, Float64

_USUAL = 10  # a gap is so many times as long as a block usually takes,
_SHARE = 1 / 50  # and so much of the whole that it can be seen
_PLACES = 600  # on the axis of time that can be told apart

Starts = NDArray[np.intp]  # where groups of values begin
Merge = Callable[[Float64, Starts], Float64]


class TimeSpan(NamedTuple):
    """A span of time, from `start` to `end`, in Unix time."""

    start: float
    end: float


def present_spans(at: Float64, blocks: Sequence[TimeSpan]) -> list[TimeSpan]:
    """Return the spans of time in which things came, with gaps between them.

    Args:
        at: When things came, (n,) in order, n ≥ 1.
        blocks: That they filled, of which there may be none.
    """
    whole = TimeSpan(float(at[0]), float(at[-1]))
    usual = float(np.median([block.end - block.start for block in blocks or [whole]]))
    cuts = np.flatnonzero(np.diff(at) > max(_USUAL * usual, _SHARE * (whole.end - whole.start)))
    starts, ends = at[np.append(0, cuts + 1)], at[np.append(cuts, len(at) - 1)]
    return [TimeSpan(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


@dataclass(frozen=True)
class StepSegment:
    """A part of a staircase without a gap: each of `ys` holds from its place in `xs` to the next."""

    xs: list[float]
    ys: list[float]


def group_maxima(values: Float64, starts: Starts) -> Float64:
    """Return the largest value of each group.

    Args:
        values: (n,).
        starts: Where the groups begin.
    """
    most: Float64 = np.maximum.reduceat(values, starts)
    return most


def group_means(values: Float64, starts: Starts) -> Float64:
    """Return the mean of each group.

    Args:
        values: (n,).
        starts: Where the groups begin.
    """
    mean: Float64 = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    return mean


def step_segments(
    at: Sequence[float], values: Float64, end: float, present: Sequence[TimeSpan], merge: Merge
) -> list[StepSegment]:
    """Cut a staircase at its gaps: values[i] holds from at[i] to at[i + 1], the last one to `end`.

    What lies too close to be told apart becomes one step: `merge` makes one value of several.

    Args:
        at: Unix times, (n,).
        values: (n,).
        end: Of the last value.
        present: Spans, each of which becomes a segment.
        merge: Of values by group.
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
    """Words for a signal.

    Attributes:
        name: Of the signal.
        mean: What the mean of a block is a share of, or is.
        things: What fills the blocks.
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
    """Write a number of things, one or more.

    Args:
        number: How many.
        thing: In the singular.
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def format_utc(at: float) -> str:
    """Write a Unix time, `at`, in UTC, without saying so."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


ColumnsT = TypeVar("ColumnsT")


@dataclass(frozen=True)
class AlarmChange:
    """An alarm that begins or ends.

    Attributes:
        signal: Its name.
        at: Unix time.
        after: Queries, or judgements for COE, of the log up to it.
        on: Whether it begins.
    """

    signal: str
    at: float
    after: int
    on: bool


class MeanLimits(NamedTuple):
    """Limits, `lower` and `upper` in 0…1, between which the mean of a block is no drift."""

    lower: float
    upper: float


@dataclass(frozen=True)
class SignalTrace:
    """The course of one signal.

    Attributes:
        signal: Its name.
        evidence: (f,) after each fifth of a block, over that of an alarm.
        means: (b,) of its most telling variable, a block each.
        calibrated: What the calibration allows them.
        allowed: What is allowed in all, with a baseline.
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
        blocks: When each began and was complete.
        sizes: Things in each, no two of them the same.
        size: Of the block that is open.
        distinct: How many different things there are in all.
        present: When any came.
        traces: Of its signals.
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
        moments: Alarms that begin or end, in the order of time.
        queries: Course of the queries.
        judged: Course of the judgements, None where nothing was judged.
    """

    moments: list[AlarmChange]
    queries: StreamCourse
    judged: StreamCourse | None


def replay(log: ReleaseLog, monitor: Monitor, calibrated: Monitor) -> ReplayedLog:
    """Replay a log: do what the service would have done.

    Args:
        log: Queries and judgements.
        monitor: The alarms.
        calibrated: The monitor without a baseline, or the same one.
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
    """Weigh all that was seen; what begins or ends is added to `moments`."""
    shown = [_telling(columns) for columns in stream.columns]
    fifths: list[float] = []
    evidence: list[list[float]] = []
    means: list[Float64] = []
    blocks: list[TimeSpan] = []
    sizes: list[int] = []
    first = size = 0  # of the block that is open
    for each in results:
        row = each.fifth.row
        at = float(seen.at[row])
        moments += [AlarmChange(change.signal, at, row + 1, change.on) for change in each.changes]
        fifths.append(at)
        evidence.append([alarm.share_of_threshold for alarm in stream.alarms])
        size += each.fifth.queries
        if each.fifth.block is not None:
            means.append(each.fifth.block[shown])
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
    """Return the column that is drawn of a signal: its only one, or whether the best similarity is below the median.

    `topk_similarity` has columns for five percentiles, the median in the middle, each for the best and the K-th.
    """
    width: int = columns.stop - columns.start
    return int(columns.start) + 2 * (width // 5)


def _limits(stream: Stream[ColumnsT], index: int, column: int) -> MeanLimits:
    lower, upper = stream.alarms[index].bounds
    place = column - stream.columns[index].start
    return MeanLimits(float(lower[place]), float(upper[place]))
