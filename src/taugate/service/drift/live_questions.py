"""Collects the questions of live traffic that are least like the calibration while an alarm is on."""

from collections import deque
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from taugate.drift.new_questions import NewQuestions, QuestionGroup, UsualRange
from taugate.errors import ReleaseError
from taugate.retrieval.release.questions import texts_of
from taugate.service.drift.query_log import ServedReply
from taugate.service.drift.watched import WatchedRelease

# The queries that raise an alarm come before it: with blocks of 200, the default, a large change takes two of them.
_BEFORE_ALARM = 400
_PASSAGES = 1000  # whose words are counted; a share of 5 % of as many is off by at most 1.4 points (95 %)


class LiveQuestions:
    """The questions under the latest alarm of one process. One thread adds replies; any may read `groups`.

    Attributes:
        groups: The groups of new questions, the most frequent first; empty before the first alarm.
    """

    def __init__(self, release: WatchedRelease) -> None:
        self.groups: list[QuestionGroup] = []
        self._release = release
        self._recent: deque[tuple[str, float, float]] = deque()  # text, time, best similarity
        self._alarm = False

    @cached_property
    def _collected(self) -> NewQuestions:
        """No questions yet; made in the thread of the analysis, because words are counted for some 0.1 s."""
        release = self._release
        usual = UsualRange.of(release.reference.top[:, 0])
        return NewQuestions(usual, texts_of(release.questions), self._passages())

    def _passages(self) -> list[str]:
        documents = self._release.documents
        if documents is None:
            return []
        spread = np.linspace(0, len(documents) - 1, min(len(documents), _PASSAGES)).astype(np.int64)
        try:
            return [document.encoded_text for document in documents.at(spread)]
        except ReleaseError:  # the words of the calibration's questions are then all there is
            return []

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
