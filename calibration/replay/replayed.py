"""A log through the alarms of a release."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from calibration.replay.log import QueryLog
from retrieval.drift.monitor import Monitor

_POINTS = 400  # of a line that is drawn


@dataclass(frozen=True)
class Moment:
    """An alarm that begins or ends. at: Unix time; after: queries, or judgements for COE, of the log up to it."""

    signal: str
    at: float
    after: int
    on: bool


@dataclass(frozen=True)
class Trace:
    """The evidence of one signal over that of an alarm, (p,) in 0…1, at times (p,)."""

    signal: str
    at: Sequence[float]
    evidence: Sequence[float]


@dataclass(frozen=True)
class Replayed:
    """moments: in the order of time."""

    moments: list[Moment]
    traces: list[Trace]


def replay(log: QueryLog, monitor: Monitor) -> Replayed:
    """What the service would have told; the alarms are the same however the log is cut."""
    moments: list[Moment] = []
    evidence: dict[str, list[float]] = {alarm.signal.name: [] for alarm in monitor.of_queries}
    at = []
    for rows in _blocks(len(log.queries)):
        part = log.queries.take(rows)
        moments += [
            Moment(change.signal, float(part.at[change.row]), rows.start + change.row + 1, change.on)
            for change in monitor.update(part)
        ]
        at.append(float(part.at[-1]))
        for alarm in monitor.of_queries:
            evidence[alarm.signal.name].append(alarm.share_of_threshold)
    traces = [Trace(name, at, values) for name, values in evidence.items()]
    judged, at, shares = log.judged, [], []
    for rows in _blocks(len(judged)):
        for change in monitor.feedback(judged.correct[rows]):
            row = rows.start + change.row
            moments.append(Moment(change.signal, float(judged.at[row]), row + 1, change.on))
        at.append(float(judged.at[rows][-1]))
        shares.append(monitor.of_feedback.share_of_threshold)
    if len(judged):
        traces.append(Trace(monitor.of_feedback.signal.name, at, shares))
    return Replayed(sorted(moments, key=lambda moment: moment.at), traces)


def _blocks(count: int) -> list[slice]:
    edges = np.unique(np.linspace(0, count, _POINTS + 1).round().astype(int)).tolist()
    return [slice(start, stop) for start, stop in pairwise(edges)]
