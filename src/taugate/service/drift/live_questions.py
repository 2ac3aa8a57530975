"""Collects the questions of live traffic that are least like the calibration while an alarm is on."""

from collections import deque
from collections.abc import Sequence

from taugate.drift.new_questions import NewQuestions, QuestionGroup, UsualRange
from taugate.retrieval.release.query_arrays import Reference
from taugate.service.drift.query_log import ServedReply

# The queries that raise an alarm come before it: with blocks of 200, the default, a large change takes two of them.
_BEFORE_ALARM = 400


class LiveQuestions:
    """The questions under the latest alarm of one process. One thread adds replies; any may read `groups`.

    Attributes:
        groups: The groups of new questions, the most frequent first; empty before the first alarm.
    """

    def __init__(self, reference: Reference) -> None:
        self.groups: list[QuestionGroup] = []
        self._collected = NewQuestions(UsualRange.of(reference.top[:, 0]))
        self._recent: deque[tuple[str, float, float]] = deque()  # text, time, best similarity
        self._alarm = False

    def add(self, served: Sequence[ServedReply], *, alarm: bool) -> None:
        """Add replies, of which those count that drift compares; `alarm` is whether an alarm is on after them."""
        self._recent += [
            (reply.query.text, reply.at, float(reply.record.similarities[0]))
            for reply in served
            if len(reply.record.similarities)
        ]
        if alarm and not self._alarm:
            self._collected.forget_unusual()
        self._alarm = alarm
        while len(self._recent) > (0 if alarm else _BEFORE_ALARM):
            text, at, best = self._recent.popleft()
            self._collected.add(text, at, best, is_new=alarm)
        if alarm:
            self.groups = self._collected.groups()
