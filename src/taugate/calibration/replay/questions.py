"""The questions of a log that are new under its alarms."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from taugate.calibration.replay.log import AnsweredLog
from taugate.calibration.replay.replayed import ReplayedLog
from taugate.drift.new_questions import NewQuestions, QuestionGroup, UsualRange
from taugate.drift.query_log import LoggedQuery, read_query_log

NO_TEXTS = (
    "The log has hashes in place of texts, so no question can be named: TAUGATE_QUERY_LOG_TEXTS=true keeps the texts "
    "of later queries."
)


class TimeSpan(NamedTuple):
    """A span of time, from `start` to `end`, in Unix time."""

    start: float
    end: float


def new_questions(answered: AnsweredLog, replayed: ReplayedLog, logs: Sequence[Path]) -> list[QuestionGroup] | None:
    """Return the questions under the alarms of a replay that are least like the calibration's, grouped.

    Args:
        answered: The release with its log.
        replayed: The replay of the log.
        logs: Files of the log, which are read again, because a replay keeps no texts.

    Returns:
        The groups; none without an alarm, and None if the log has no texts.
    """
    spans = alarm_spans(replayed)
    if not spans:
        return []
    collected = NewQuestions(UsualRange.of(answered.reference.top[:, 0]), answered.questions)
    has_texts = False
    for line in read_query_log(logs):
        query = line.record
        if not isinstance(query, LoggedQuery) or query.release != answered.release:
            continue
        if query.topk and query.has_text:
            has_texts = True
            is_new = any(span.start <= query.at <= span.end for span in spans)
            collected.add(query.query, query.at, query.topk[0], is_new=is_new)
    return collected.groups() if has_texts else None


def alarm_spans(replayed: ReplayedLog) -> list[TimeSpan]:
    """Return the times during which any alarm was on, each from the block before on, whose queries raised it."""
    spans: list[TimeSpan] = []
    on: dict[str, float] = {}
    for change in replayed.moments:
        if change.on:
            before = [start for start in replayed.blocks if start < change.at][-2:]
            on[change.signal] = before[0] if before else change.at
        elif change.signal in on:
            spans.append(TimeSpan(on.pop(change.signal), change.at))
    return spans + [TimeSpan(start, float("inf")) for start in on.values()]
