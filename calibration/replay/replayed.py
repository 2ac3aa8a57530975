"""A log through the alarms of a release."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from taugate.calibration.replay.log import QueryLog
from taugate.calibration.replay.stairs import Span, spans
from taugate.drift.effect import Float64
from taugate.drift.monitor import Monitor, Stream, Weighed
from taugate.drift.observations import Columns

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Moment:
    """An alarm that begins or ends. at: Unix time; after: queries, or judgements for COE, of the log up to it."""

    signal: str
    at: float
    after: int
    on: bool


class Limits(NamedTuple):
    """Between which the mean of a block is no drift, in 0…1."""

    lower: float
    upper: float


@dataclass(frozen=True)
class Trace:
    """Of one signal.

    evidence: (f,) after each fifth of a block, over that of an alarm; means: (b,) of its most telling variable, a block
    each; calibrated: what the calibration allows them; allowed: what is allowed in all, with a baseline.
    """

    signal: str
    evidence: Float64
    means: Float64
    calibrated: Limits
    allowed: Limits


@dataclass(frozen=True)
class Course:
    """Of what is weighed in the same blocks.

    fifths: (f,) Unix times at which a fifth of a block was complete; blocks: when each began and was complete; sizes:
    things in each, no two of them the same; size: of the block that is open; distinct: how many different things there
    are in all; present: when any came.
    """

    fifths: Float64
    blocks: list[Span]
    sizes: list[int]
    size: int
    distinct: int
    present: list[Span]
    traces: list[Trace]


@dataclass(frozen=True)
class Replayed:
    """moments: in the order of time; judged: None where nothing was judged."""

    moments: list[Moment]
    queries: Course
    judged: Course | None


def replay(log: QueryLog, monitor: Monitor, calibrated: Monitor) -> Replayed:
    """What the service would have told; calibrated: the monitor without a baseline, or the same one."""
    moments: list[Moment] = []
    queries = _course(log.queries, monitor.weigh(log.queries), monitor.queries, calibrated.queries, moments)
    judged = None
    if len(log.judged):
        weighed = monitor.weigh_judged(log.judged)
        judged = _course(log.judged, weighed, monitor.feedback, calibrated.feedback, moments)
    return Replayed(sorted(moments, key=lambda moment: moment.at), queries, judged)


def _course(
    seen: Columns, weighed: Iterator[Weighed], stream: Stream[Seen], calibrated: Stream[Seen], moments: list[Moment]
) -> Course:
    """Weighs all that was seen; what begins or ends is added to `moments`."""
    shown = [_telling(columns) for columns in stream.columns]
    fifths: list[float] = []
    evidence: list[list[float]] = []
    means: list[Float64] = []
    blocks: list[Span] = []
    sizes: list[int] = []
    first = size = 0  # of the block that is open
    for each in weighed:
        row = each.fifth.row
        at = float(seen.at[row])
        moments += [Moment(change.signal, at, row + 1, change.on) for change in each.changes]
        fifths.append(at)
        evidence.append([alarm.share_of_threshold for alarm in stream.alarms])
        size += each.fifth.queries
        if each.fifth.block is not None:
            means.append(each.fifth.block[shown])
            blocks.append(Span(float(seen.at[first]), at))
            sizes.append(size)
            first, size = row + 1, 0
    shares, drawn = np.reshape(evidence, (-1, len(shown))), np.reshape(means, (-1, len(shown)))
    traces = [
        Trace(
            alarm.signal,
            shares[:, index],
            drawn[:, index],
            _limits(calibrated, index, shown[index]),
            _limits(stream, index, shown[index]),
        )
        for index, alarm in enumerate(stream.alarms)
    ]
    distinct = len(np.unique(seen.key))
    return Course(np.array(fifths), blocks, sizes, stream.blocks.size, distinct, spans(seen.at, blocks), traces)


def _telling(columns: slice) -> int:
    """The column that is drawn of a signal: its only one, or whether the best similarity is below the median.

    `topk_similarity` has columns for five percentiles, the median in the middle, each for the best and the K-th.
    """
    width: int = columns.stop - columns.start
    return int(columns.start) + 2 * (width // 5)


def _limits(stream: Stream[Seen], index: int, column: int) -> Limits:
    lower, upper = stream.alarms[index].bounds
    place = column - stream.columns[index].start
    return Limits(float(lower[place]), float(upper[place]))
