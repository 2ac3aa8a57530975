"""Figures of answering with nothing: both errors over all thresholds, and how sure the first answers are."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.charts.chart import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.charts.numbers import percent
from taugate.calibration.metrics.measure import abstention, risk_coverage
from taugate.calibration.metrics.ranking import ScoredQueries
from taugate.calibration.study.study import Findings
from taugate.retrieval.policy.policy import PolicyKind
from taugate.retrieval.release.manifest import Abstention
from taugate.retrieval.release.records import AbstentionRecord
from taugate.retrieval.vectors.similarity import Float32

_POINTS = 200
_SERIES = ("s-accuracy", "s-random", "s-ndcg")  # a solid line for what is in force, which comes first
Scores = Mapping[str, tuple[Float32, Float32]]


@dataclass(frozen=True)
class ShownQueries:
    """The answerable queries that a figure shows.

    Attributes:
        members: Their positions.
        queries: The queries, with their results.
        words: Which they are, for people.
    """

    members: NDArray[np.int64]
    queries: ScoredQueries
    words: str


def shown_queries(found: Findings) -> ShownQueries:
    """Take the held-out queries; without any, those of the calibration queries that the model was not fitted on.

    Args:
        found: Findings of the study.
    """
    if "heldout" in found.parts:
        members = found.parts["heldout"].members
        words = f"{len(members):,} held-out answerable queries, which had no say in the threshold"
    elif found.roles is not None:
        members = found.roles.rest
        words = (
            f"{len(members):,} calibration queries that the relevance model was not fitted on (none are held out, and "
            "the threshold was chosen on these, so it looks a little better here than it is)"
        )
    else:
        members = found.parts["calibration"].members
        words = (
            f"{len(members):,} calibration queries (none are held out, and the threshold was chosen on these, so it "
            "looks a little better here than it is)"
        )
    return ShownQueries(members, found.scored.take(members), words)


@dataclass(frozen=True)
class AbstentionFigures:
    """Figures of answering with nothing, with the numbers beside them.

    Attributes:
        measured: Of the queries shown, with all that is in force.
        unanswerable: How many queries ought to get nothing.
        record: Of the policy that refuses queries, None without one.
        figures: Both errors, and risk against coverage.
    """

    measured: Abstention
    unanswerable: int
    record: AbstentionRecord | None
    figures: list[Figure]


def abstention_figures(found: Findings, shown: ShownQueries) -> AbstentionFigures | None:
    """Draw the queries shown and the unanswerable ones; None where there are none of these.

    Where queries are refused as a whole it is the unanswerable ones that had no say in the score.

    Args:
        found: Findings of the study.
        shown: The answerable queries to show.
    """
    if not len(found.scored.unanswerable):
        return None
    policy = found.abstention
    rows = np.arange(len(found.scored.unanswerable)) if policy is None else policy.chosen.certify_unanswerable
    answerable, unanswerable, least = shown.queries.deciding(found.policy.kind, found.threshold)
    unanswerable = unanswerable[rows]
    measured = abstention(answerable, shown.queries.judged.accuracy(), unanswerable, least)
    record = None if policy is None else policy.record
    best = np.concatenate([answerable.max(axis=1), unanswerable.max(axis=1)])
    figures = [_errors(_scores(found, shown, rows), measured, record), _risk(best, shown, least)]
    return AbstentionFigures(measured, len(rows), record, figures)


def _scores(found: Findings, shown: ShownQueries, rows: NDArray[np.int64]) -> Scores:
    """Collect the scores that may tell the two kinds of query apart, (q,) and (u,) of each.

    what is in force comes first.
    """
    if found.abstention is not None:
        chosen = found.abstention.chosen
        curves = {chosen.score.name: chosen.curves[chosen.score.name], **chosen.curves}
        return {name: (each[shown.members], others[rows]) for name, (each, others) in curves.items()}
    # A share of the best score of the same query tells nothing of the query: it is shown only where it is in force.
    kinds: list[PolicyKind] = [kind for kind in found.scored.kinds if kind != "relative" or kind == found.policy.kind]
    kinds.sort(key=lambda kind: kind != found.policy.kind)
    decisions = {kind: (shown.queries.decisions(kind), shown.queries.unanswerable_decisions(kind)) for kind in kinds}
    return {kind: (each.max(axis=1), others[rows].max(axis=1)) for kind, (each, others) in decisions.items()}


def _errors(scores: Scores, measured: Abstention, record: AbstentionRecord | None) -> Figure:
    chart = Chart(
        "abstention",
        "Both errors, at every threshold",
        "One curve for each score; the nearer to the lower left corner the better.",
        Axis(0, 1, "answerable queries left empty", "percent"),
        Axis(0, 1, "unanswerable queries answered", "percent"),
    )
    keys = []
    if record is not None:
        keys.append(LegendEntry("mark", "limit", "the most that was asked for"))
        chart.level(record.answered_unanswerable.asked or 1.0, "limit")
        if record.empty_answerable.asked is not None:
            chart.upright(record.empty_answerable.asked, "", "limit")
    chart.line([0, 1], [1, 0], "guess")
    for (name, each), series in zip(scores.items(), _SERIES, strict=False):
        chart.line(*both_errors(*each), series)
        keys.append(LegendEntry("line", series, name.replace("_", " ")))
    x, y = measured.answerable_empty, 1 - (measured.unanswerable_empty or 0.0)
    said = f"in force: {percent(x)} left empty, {percent(y)} answered"
    chart.dots([Dot(x, y, "", said)])
    return Figure.from_chart(chart, [*keys, LegendEntry("line", "guess", "guessing"), LegendEntry("dot", "", said)])


def both_errors(answerable: Float32, unanswerable: Float32) -> tuple[list[float], list[float]]:
    """Return the share of answerable queries below a threshold and of unanswerable ones not below it, from low to high.

    Args:
        answerable: (q,) and unanswerable: (u,) best scores.
    """
    best = np.unique(np.concatenate([answerable, unanswerable]))
    thresholds = best[np.unique(np.linspace(0, len(best) - 1, _POINTS).astype(int))]
    below = [np.searchsorted(np.sort(each), thresholds, side="left") / len(each) for each in (answerable, unanswerable)]
    return [*below[0].tolist(), 1.0], [*(1 - below[1]).tolist(), 0.0]


def _risk(best: Float32, shown: ShownQueries, least: np.float32 | None) -> Figure:
    """Draw risk against coverage.

    Args:
        best: (q + u,) of the answerable queries, then of the unanswerable ones.
        least: What is answered reaches it.
    """
    hits = shown.queries.judged.accuracy()
    coverage, risk = risk_coverage(best, np.concatenate([hits, np.zeros(len(best) - len(hits))]))
    taken = np.unique(np.linspace(len(best) // 100, len(best) - 1, _POINTS).astype(int))
    chart = Chart(
        "risk-coverage",
        "Wrong answers among the queries answered",
        "A curve over the share of queries answered, the surest ones first; the lower the better.",
        Axis(0, 1, "queries answered", "percent"),
        Axis(0, 1, "of these, without a relevant document", "percent"),
    )
    chart.line(coverage[taken].tolist(), risk[taken].tolist(), "s-risk")
    keys = [LegendEntry("line", "s-risk", "queries from the surest on, unanswerable ones among them")]
    answered = len(best) if least is None else int((best >= least).sum())
    if answered:
        x, y = answered / len(best), float(risk[answered - 1])
        chart.dots([Dot(x, y, "", f"in force: {percent(x)} answered")])
        keys.append(LegendEntry("dot", "", f"in force: {percent(x)} answered, {percent(y)} of these wrong"))
    return Figure.from_chart(chart, keys)
