"""Answering with nothing: what it costs the queries that have an answer, and how sure the first answers are."""

from dataclasses import dataclass

import numpy as np

from calibration.metrics.abstention import abstention, risk_coverage
from calibration.report.axis import Axis
from calibration.report.chart import Chart, Dot
from calibration.report.figure import Figure, Key
from calibration.report.numbers import percent
from calibration.report.shown import Shown
from calibration.study import Findings
from retrieval.policy import PolicyKind
from retrieval.release.manifest import Abstention
from retrieval.similarity import Float32

_POINTS = 200


@dataclass(frozen=True)
class Abstaining:
    """record: of the queries shown, with the rule in force; unanswerable: how many queries ought to get nothing."""

    record: Abstention
    unanswerable: int
    figures: list[Figure]


def abstaining(found: Findings, shown: Shown) -> Abstaining | None:
    """The figures of the queries shown and of all unanswerable ones; None where there are none of these."""
    if not len(found.scored.unanswerable):
        return None
    decisions, unanswerable = _decisions(shown, found.policy.kind)
    record = abstention(decisions, shown.queries.judged.accuracy(), unanswerable, found.threshold)
    return Abstaining(record, len(unanswerable), [_emptied(found, shown, record), _risk(found, shown)])


def _emptied(found: Findings, shown: Shown, record: Abstention) -> Figure:
    chart = Chart(
        "abstention",
        "Queries answered with nothing",
        "One curve for each policy over all of its thresholds; the nearer to the upper left corner the better.",
        Axis(0, 1, "answerable queries left empty", "percent"),
        Axis(0, 1, "unanswerable queries left empty", "percent"),
    )
    chart.line([0, 1], [0, 1], "guess")
    kinds = [kind for kind in found.scored.kinds if kind != "relative" or kind == found.policy.kind]
    keys = []
    for kind in kinds:
        answerable, unanswerable = (each.max(axis=1) for each in _decisions(shown, kind))
        chart.line(*emptied(answerable, unanswerable), f"s-{kind}")
        keys.append(Key("line", f"s-{kind}", f"{kind}{', in force' if kind == found.policy.kind else ''}"))
    x, y = record.answerable_empty, record.unanswerable_empty or 0.0
    chart.dots([Dot(x, y, "", f"in force: {percent(x)} and {percent(y)} left empty")])
    keys += [Key("line", "guess", "guessing"), Key("dot", "", f"in force: {percent(x)} and {percent(y)}")]
    return Figure.of(chart, keys)


def emptied(answerable: Float32, unanswerable: Float32) -> tuple[list[float], list[float]]:
    """Share of each kind of query whose best decision score is below a threshold, for thresholds from low to high."""
    best = np.unique(np.concatenate([answerable, unanswerable]))
    thresholds = best[np.unique(np.linspace(0, len(best) - 1, _POINTS).astype(int))]
    shares = (
        np.searchsorted(np.sort(each), thresholds, side="left") / len(each) for each in (answerable, unanswerable)
    )
    x, y = (share.tolist() for share in shares)
    return [*x, 1.0], [*y, 1.0]


def _risk(found: Findings, shown: Shown) -> Figure:
    decisions, unanswerable = _decisions(shown, found.policy.kind)
    best = np.concatenate([decisions.max(axis=1), unanswerable.max(axis=1)])
    right = np.concatenate([shown.queries.judged.accuracy(), np.zeros(len(unanswerable))])
    coverage, risk = risk_coverage(best, right)
    taken = np.unique(np.linspace(len(best) // 100, len(best) - 1, _POINTS).astype(int))
    chart = Chart(
        "risk-coverage",
        "Wrong answers among the queries answered",
        "A curve over the share of queries answered, the surest ones first; the lower the better.",
        Axis(0, 1, "queries answered", "percent"),
        Axis(0, 1, "of these, without a relevant document", "percent"),
    )
    chart.line(coverage[taken].tolist(), risk[taken].tolist(), "s-risk")
    keys = [Key("line", "s-risk", "queries from the surest on, unanswerable ones among them")]
    tau = found.threshold
    answered = len(best) if tau is None else int((best >= tau).sum())
    if answered:
        x, y = answered / len(best), float(risk[answered - 1])
        chart.dots([Dot(x, y, "", f"in force: {percent(x)} answered")])
        keys.append(Key("dot", "", f"in force: {percent(x)} answered, {percent(y)} of these wrong"))
    return Figure.of(chart, keys)


def _decisions(shown: Shown, kind: PolicyKind) -> tuple[Float32, Float32]:
    return shown.queries.decisions(kind), shown.queries.unanswerable_decisions(kind)
