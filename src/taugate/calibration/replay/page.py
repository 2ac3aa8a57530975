"""Render a replay as a page like the report's."""

from collections.abc import Sequence
from dataclasses import dataclass

from taugate.calibration.charts.chart import Figure
from taugate.calibration.charts.template import template
from taugate.calibration.replay.figures import best_similarity_figure, block_means_figure, evidence_figure
from taugate.calibration.replay.log import AnsweredLog
from taugate.calibration.replay.replayed import SIGNALS, AlarmChange, ReplayedLog, StreamCourse, format_utc
from taugate.calibration.replay.time_axis import TimeAxis
from taugate.drift.baseline import Baseline
from taugate.drift.new_questions import QuestionGroup, UsualRange

NO_TEXTS = (
    "The log has hashes in place of texts, so no question can be named: TAUGATE_QUERY_LOG_TEXTS=true keeps the texts "
    "of later queries."
)


@dataclass(frozen=True)
class SignalFigures:
    """A signal on the page.

    Attributes:
        name: Display name.
        figures: Figures of its evidence and its means.
    """

    name: str
    figures: list[Figure]


@dataclass(frozen=True)
class BlockCounts:
    """Counts of a stream.

    Attributes:
        number: Number of complete blocks.
        size: Size of a block, as text.
        seen: Number of queries or judgements, repeats included.
        distinct: Number of different ones.
        gaps: Number of gaps in time.
    """

    number: int
    size: str
    seen: int
    distinct: int
    gaps: int

    @classmethod
    def from_course(cls, course: StreamCourse, seen: int) -> "BlockCounts":
        """Count the blocks of a stream with `seen` queries or judgements."""
        smallest, largest = (choose(course.sizes or [course.size]) for choose in (min, max))
        size = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
        return cls(len(course.blocks), size, seen, course.distinct, len(course.present) - 1)


def render(
    answered: AnsweredLog,
    replayed: ReplayedLog,
    baseline: Baseline | None,
    questions: Sequence[QuestionGroup] | None,
) -> str:
    """Render the page of a log.

    Args:
        answered: The release with its log.
        replayed: Outcome of the replay.
        baseline: The baseline that widens the bounds, if any.
        questions: The questions that are new under the alarms; None if the log has no texts.
    """
    log, moments = answered.log, replayed.moments
    start, end = (float(at) for at in log.queries.at[[0, -1]])
    ends = [start, end, *log.judged.at[[0, -1]].tolist()] if len(log.judged) else [start, end]
    time = TimeAxis.between(min(ends), max(ends))
    html: str = template("taugate.calibration.replay", "replay.html.j2").render(
        release=answered.release,
        percentile=answered.percentile,
        other_lines=log.other_lines,
        first=format_utc(min(ends)),
        last=format_utc(max(ends)),
        queries=BlockCounts.from_course(replayed.queries, len(log.queries)),
        judged=None if replayed.judged is None else BlockCounts.from_course(replayed.judged, len(log.judged)),
        baseline=baseline,
        alarms=sum(change.on for change in moments),
        moments=[(format_utc(change.at), SIGNALS[change.signal], change.after, change.on) for change in moments],
        no_texts=NO_TEXTS if questions is None else None,
        questions=[(group, format_utc(group.since)) for group in questions or ()],
        usual=UsualRange.of(answered.reference.top[:, 0]),
        best=best_similarity_figure(log.queries, answered.reference, replayed.queries.present, moments, time),
        signals=[
            shown
            for course in (replayed.queries, replayed.judged)
            if course is not None
            for shown in _signals(course, moments, time, baseline=baseline is not None)
        ],
    )
    return html


def _signals(
    course: StreamCourse, moments: Sequence[AlarmChange], time: TimeAxis, *, baseline: bool
) -> list[SignalFigures]:
    return [
        SignalFigures(
            SIGNALS[trace.signal].name,
            [
                evidence_figure(trace, course, moments, time),
                block_means_figure(trace, course, moments, time, baseline=baseline),
            ],
        )
        for trace in course.traces
    ]
