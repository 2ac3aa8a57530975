"""Charts of abstention: both errors at every threshold, and risk against coverage."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.charts import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.formats import percent
from taugate.calibration.study.outcomes import Calibrated
from taugate.evidence.measure import abstention, risk_coverage
from taugate.evidence.ranking import ScoredQueries
from taugate.policy.arrays import Float32
from taugate.policy.names import PolicyKind
from taugate.policy.policy import POLICIES
from taugate.release.outcome_records import Abstention
from taugate.release.refusal_records import RequestedLimits

_POINTS = 200
_SERIES = ("s-accuracy", "s-random", "s-ndcg")  # a solid line for the score in force, which is the first
Scores = Mapping[str, tuple[Float32, Float32]]


@dataclass(frozen=True)
class ShownQueries:
    """The answerable queries that a figure shows."""

    members: NDArray[np.int64]
    queries: ScoredQueries
    words: str


def shown_queries(calibrated: Calibrated) -> ShownQueries:
    """Return the held-out queries, or else the calibration queries that the relevance model was not fitted on."""
    if "heldout" in calibrated.parts:
        members = calibrated.parts["heldout"].members
        words = f"{len(members):,} held-out answerable queries, which did not influence the threshold"
    elif calibrated.roles is not None:
        members = calibrated.roles.not_fitting
        words = (
            f"{len(members):,} calibration queries that the relevance model was not fitted on (no queries are held "
            "out, and the threshold was chosen on these, so it looks slightly better here than it is)"
        )
    else:
        members = calibrated.parts["calibration"].members
        words = (
            f"{len(members):,} calibration queries (no queries are held out, and the threshold was chosen on these, so "
            "it looks slightly better here than it is)"
        )
    return ShownQueries(members, calibrated.scored.take(members), words)


@dataclass(frozen=True)
class AbstentionFigures:
    """Charts of abstention, with the numbers beside them."""

    measured: Abstention  # abstention on the queries shown, by the rules in force
    unanswerable: int
    figures: list[Figure]


def abstention_figures(calibrated: Calibrated, shown: ShownQueries) -> AbstentionFigures | None:
    """Draw the charts for the queries shown and the unanswerable ones; None if there are no unanswerable queries.

    If a rule refuses queries, only the unanswerable queries that did not influence its score are used.
    """
    if not len(calibrated.scored.unanswerable):
        return None
    refusal, rows = calibrated.refusal, np.arange(len(calibrated.scored.unanswerable))
    if refusal is not None and refusal.certifying is not None:
        rows = refusal.certifying[1]
    answerable, unanswerable, min_score = shown.queries.deciding(calibrated.policy.kind, calibrated.threshold)
    unanswerable = unanswerable[rows]
    measured = abstention(answerable, shown.queries.judged.accuracy(), unanswerable, min_score)
    limits = None if refusal is None else refusal.record.limits
    best = np.concatenate([answerable.max(axis=1), unanswerable.max(axis=1)])
    figures = [_errors(_scores(calibrated, shown, rows), measured, limits), _risk(best, shown, min_score)]
    return AbstentionFigures(measured, len(rows), figures)


def _scores(calibrated: Calibrated, shown: ShownQueries, rows: NDArray[np.int64]) -> Scores:
    """Collect the scores that could separate the two kinds of query, (q,) and (u,), the one in force first."""
    if calibrated.refusal is not None and (curves := calibrated.refusal.curves):
        return {
            name: (answerable[shown.members], unanswerable[rows]) for name, (answerable, unanswerable) in curves.items()
        }
    # The best result of a query always has the same share and gap, so these policies are shown only if in force.
    kinds: list[PolicyKind] = [
        kind for kind in calibrated.scored.kinds if not POLICIES[kind].keeps_best or kind == calibrated.policy.kind
    ]
    kinds.sort(key=lambda kind: kind != calibrated.policy.kind)
    decisions = {kind: (shown.queries.decisions(kind), shown.queries.unanswerable_decisions(kind)) for kind in kinds}
    return {
        kind: (answerable.max(axis=1), unanswerable[rows].max(axis=1))
        for kind, (answerable, unanswerable) in decisions.items()
    }


def _errors(scores: Scores, measured: Abstention, limits: RequestedLimits | None) -> Figure:
    chart = Chart(
        "abstention",
        "Errors on answerable and unanswerable queries at every threshold",
        "One curve per score; the closer to the lower left corner, the better.",
        Axis(0, 1, "answerable queries left empty", "percent"),
        Axis(0, 1, "unanswerable queries answered", "percent"),
    )
    keys = []
    if limits is not None:
        keys.append(LegendEntry("mark", "limit", "requested limits"))
        chart.level(limits.answered.asked or 1.0, "limit")
        if limits.refused.asked is not None:
            chart.upright(limits.refused.asked, "", "limit")
    chart.line([0, 1], [1, 0], "guess")
    for (name, curve), series in zip(scores.items(), _SERIES, strict=False):
        chart.line(*both_errors(*curve), series)
        keys.append(LegendEntry("line", series, name.replace("_", " ")))
    x, y = measured.answerable_empty, 1 - (measured.unanswerable_empty or 0.0)
    in_force = f"in force: {percent(x)} of answerable queries left empty, {percent(y)} of unanswerable ones answered"
    chart.dots([Dot(x, y, "", in_force)])
    return Figure.from_chart(chart, [*keys, LegendEntry("line", "guess", "guessing"), LegendEntry("dot", "", in_force)])


def both_errors(answerable: Float32, unanswerable: Float32) -> tuple[list[float], list[float]]:
    """Return the shares of answerable queries below ascending thresholds, and of unanswerable ones at or above them.

    Args:
        answerable: (q,) best scores.
        unanswerable: (u,) best scores.
    """
    best = np.unique(np.concatenate([answerable, unanswerable]))
    thresholds = best[np.unique(np.linspace(0, len(best) - 1, _POINTS).astype(int))]
    below = [
        np.searchsorted(np.sort(best_scores), thresholds, side="left") / len(best_scores)
        for best_scores in (answerable, unanswerable)
    ]
    return [*below[0].tolist(), 1.0], [*(1 - below[1]).tolist(), 0.0]


def _risk(best: Float32, shown: ShownQueries, min_score: np.float32 | None) -> Figure:
    """Draw risk against coverage.

    Args:
        best: (q + u,) best scores of the answerable queries, then of the unanswerable ones.
        min_score: Smallest score that is answered, None if all are.
    """
    hits = shown.queries.judged.accuracy()
    coverage, risk = risk_coverage(best, np.concatenate([hits, np.zeros(len(best) - len(hits))]))
    taken = np.unique(np.linspace(len(best) // 100, len(best) - 1, _POINTS).astype(int))
    chart = Chart(
        "risk-coverage",
        "Wrong answers among the queries answered",
        "Queries are answered in descending order of score; the lower the curve, the better.",
        Axis(0, 1, "queries answered", "percent"),
        Axis(0, 1, "of these, without a relevant document", "percent"),
    )
    chart.line(coverage[taken].tolist(), risk[taken].tolist(), "s-risk")
    keys = [LegendEntry("line", "s-risk", "queries by descending score, including unanswerable ones")]
    answered = len(best) if min_score is None else int((best >= min_score).sum())
    if answered:
        x, y = answered / len(best), float(risk[answered - 1])
        chart.dots([Dot(x, y, "", f"in force: {percent(x)} answered")])
        keys.append(LegendEntry("dot", "", f"in force: {percent(x)} answered, {percent(y)} of these wrong"))
    return Figure.from_chart(chart, keys)
