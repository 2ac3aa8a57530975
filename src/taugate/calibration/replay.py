"""Replays recorded query logs through the drift alarms, and learns a release's drift baseline from them."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self

import numpy as np

from taugate.drift.live_loss import promised_loss
from taugate.drift.monitor import FifthResult, Monitor
from taugate.drift.new_questions import NewQuestions, QuestionGroup, UsualRange
from taugate.drift.observations import Columns, JudgedReplies, Observations
from taugate.drift.query_log import LoggedJudgement, LoggedQuery, LogLine, read_query_log
from taugate.drift.signals import Bounds, Rules, theta_of
from taugate.errors import InputError
from taugate.registry.catalog import find
from taugate.release.layout import QUESTIONS, REFERENCE
from taugate.release.queries import Reference, read_calibration_questions, texts_of
from taugate.release.verify import verify

NO_TEXTS = (
    "The log has hashes in place of texts, so no question can be named: TAUGATE_QUERY_LOG_TEXTS=true keeps the texts "
    "of later queries."
)


@dataclass(frozen=True)
class ReleaseLog:
    """Lines of one release, ordered by time."""

    queries: Observations
    judged: JudgedReplies
    other_lines: int


@dataclass(frozen=True)
class AnsweredLog:
    """A release with its lines of the log."""

    release: str
    reference: Reference
    percentile: float  # percentile of the calibration's top-K similarities that gives θ, 0…100
    log: ReleaseLog
    questions: list[str]  # texts of the questions of its calibration; none if it does not have them
    promised: float | None = None  # see `promised_loss`

    @classmethod
    def read(cls, releases: Path, release: str | None, logs: Sequence[Path]) -> Self:
        """Read a release and its lines of the logs.

        Args:
            release: Id of the release, None for the current one.
        """
        folder = find(releases, release)
        manifest = verify(folder)
        reference = Reference.load(folder / REFERENCE)
        has_random, components = len(reference.random) > 0, reference.component_means.shape[1]
        log = read_log(logs, manifest.release_id, reference.top.shape[1], has_random=has_random, components=components)
        questions = texts_of(read_calibration_questions(folder / QUESTIONS))
        percentile, promised = manifest.bootstrap.overlap_percentile, promised_loss(manifest)
        return cls(manifest.release_id, reference, percentile, log, questions, promised)

    def monitor(self, rules: Rules, ordinary: Mapping[str, Bounds] = MappingProxyType({})) -> Monitor:
        """Set up the alarms of a service that has just started with this release.

        Args:
            ordinary: Bounds of a baseline by signal, which widen those of the calibration.
        """
        return Monitor(self.reference, theta_of(self.reference, self.percentile), rules, ordinary)


def read_log(
    paths: Sequence[Path], release: str, k: int, *, has_random: bool = True, components: int = 0
) -> ReleaseLog:
    """Read the lines of one release.

    What is not comparable with the calibration is left out, as in drift detection.
    """
    queries, judged, other_lines = _Queries(k, components, has_random=has_random), _Judged(), 0
    for line in read_query_log(paths):
        if line.record.release != release:
            other_lines += 1
        elif isinstance(line.record, LoggedJudgement):
            judged.add(line.record)
        elif line.record.topk:
            queries.add(line, line.record)
    if not len(queries):
        problem = (
            f"all {other_lines} lines are of other releases; give one of these with --release"
            if other_lines
            else "no query"
        )
        raise InputError(f"{', '.join(map(str, paths))}: {problem}")
    return ReleaseLog(queries.columns(), judged.columns(), other_lines)


class _Queries:
    """Growing columns of queries.

    They take a tenth of the memory of Python lists; a log of a week has millions of lines.
    """

    def __init__(self, k: int, components: int, *, has_random: bool) -> None:
        self._k, self._components, self._has_random, self._random = k, components, has_random, 0
        self._at, self._key = array("d"), array("Q")
        self._top, self._randoms, self._kept, self._means = array("f"), array("f"), array("f"), array("f")

    def __len__(self) -> int:
        return len(self._at)

    def add(self, line: LogLine, query: LoggedQuery) -> None:
        top, random = query.topk, query.random
        if len(top) != self._k or self._has_random != bool(random) or len(random) != (self._random or len(random)):
            raise line.fault(f"{len(top)} and {len(random)} similarities")
        if len(query.components) != self._components:
            raise line.fault(f"{len(query.components)} of {self._components} component scores")
        if query.kept > self._k:
            raise line.fault(f'"kept": {query.kept} of {self._k} results')
        self._random = len(random)
        self._at.append(query.at)
        self._key.append(query.query_key)
        self._kept.append(query.kept)
        self._top.extend(top)
        self._randoms.extend(random)
        self._means.extend(query.components)

    def columns(self) -> Observations:
        at = np.array(self._at)
        return Observations(
            at,
            np.array(self._key, dtype=np.uint64),
            np.array(self._top, dtype=np.float32).reshape(-1, self._k),
            np.array(self._randoms, dtype=np.float32).reshape(len(at), -1),
            np.array(self._kept, dtype=np.float32),
            np.array(self._means, dtype=np.float32).reshape(len(at), -1),
        ).take(np.argsort(at, kind="stable"))


class _Judged:
    """Growing columns of judged replies, decided as in the service.

    If users name the query instead of a reply, the judgements of each API key are of one reply.
    """

    def __init__(self) -> None:
        self._irrelevant: dict[object, set[str] | None] = {}  # passages by reply; None once the reply is decided
        self._at, self._key, self._relevant = array("d"), array("Q"), array("f")

    def add(self, judgement: LoggedJudgement) -> None:
        if judgement.not_comparable or not judgement.kept or judgement.query_hash is None:
            return
        reply = judgement.query_id or (judgement.key, judgement.query_key)
        irrelevant = self._irrelevant.setdefault(reply, set())
        if irrelevant is None:
            return
        if not judgement.relevant:
            irrelevant.add(judgement.document_id)
        if judgement.relevant or len(irrelevant) == judgement.of:
            self._irrelevant[reply] = None
            self._at.append(judgement.at)
            self._key.append(int(judgement.query_hash, 16))
            self._relevant.append(judgement.relevant)

    def columns(self) -> JudgedReplies:
        at, key = np.array(self._at), np.array(self._key, dtype=np.uint64)
        judged = JudgedReplies(at, key, np.array(self._relevant, dtype=np.float32))
        return judged.take(np.argsort(at, kind="stable"))


@dataclass(frozen=True)
class AlarmChange:
    """An alarm that begins or ends."""

    signal: str
    at: float
    after: int  # number of queries (for `quality`, judged replies) of the log up to then
    on: bool


@dataclass(frozen=True)
class ReplayedLog:
    """The outcome of a replay."""

    moments: list[AlarmChange]
    blocks: list[float]  # unix times at which the complete blocks of queries began


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


class TimeSpan(NamedTuple):
    """A span of time, from `start` to `end`, in Unix time."""

    start: float
    end: float


def new_questions(answered: AnsweredLog, replayed: ReplayedLog, logs: Sequence[Path]) -> list[QuestionGroup] | None:
    """Return the questions under the alarms of a replay that are least like the calibration's, grouped.

    Args:
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
