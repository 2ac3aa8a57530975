"""Replay a log through the alarms of a release: when each alarm would have begun and ended."""

from collections.abc import Iterator
from dataclasses import dataclass

from taugate.calibration.replay.log import ReleaseLog
from taugate.drift.monitor import FifthResult, Monitor
from taugate.drift.observations import Columns


@dataclass(frozen=True)
class AlarmChange:
    """An alarm that begins or ends.

    Attributes:
        signal: Name of the signal.
        at: Unix time.
        after: Number of queries (for `quality`, judged replies) of the log up to then.
        on: Whether the alarm begins.
    """

    signal: str
    at: float
    after: int
    on: bool


@dataclass(frozen=True)
class ReplayedLog:
    """The outcome of a replay.

    Attributes:
        moments: Changes of alarms, ordered by time.
        blocks: Unix times at which the complete blocks of queries began.
    """

    moments: list[AlarmChange]
    blocks: list[float]


def replay_log(log: ReleaseLog, monitor: Monitor) -> ReplayedLog:
    """Replay a log as the service would have processed it."""
    moments: list[AlarmChange] = []
    blocks = _replay(log.queries, monitor.process(log.queries), moments)
    _replay(log.judged, monitor.process_judgements(log.judged), moments)
    return ReplayedLog(sorted(moments, key=lambda moment: moment.at), blocks)


def _replay(seen: Columns, results: Iterator[FifthResult], moments: list[AlarmChange]) -> list[float]:
    """Process a stream, whose changes of alarms are added to `moments`; returns when its complete blocks began."""
    blocks: list[float] = []
    first = 0  # row of the open block's first query
    for result in results:
        row = result.fifth.row
        moments += [AlarmChange(change.signal, float(seen.at[row]), row + 1, change.on) for change in result.changes]
        if result.fifth.block is not None:
            blocks.append(float(seen.at[first]))
            first = row + 1
    return blocks
