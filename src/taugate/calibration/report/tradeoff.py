"""Charts of refusals and of the trade-off: both errors at every threshold, and risk against coverage."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.charts import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.progress import percent
from taugate.calibration.study.outcomes import Calibrated
from taugate.evidence.measure import abstention, risk_coverage
from taugate.evidence.ranking import ScoredQueries
from taugate.evidence.risk.steps import loss_steps
from taugate.policy.arrays import Float32
from taugate.policy.names import Metric, PolicyKind
from taugate.policy.policy import POLICIES
from taugate.release.evidence import Alternative
from taugate.release.names import METHODS
from taugate.release.outcome_records import Abstention, PolicyRecord
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


_WIDEST = 0.10
_LEVELS = 200  # maximum number of steps drawn per curve; there may be one for each query
MAX_LOST = 20  # queries shown
_LONGEST = 300  # characters shown of a text


@dataclass(frozen=True)
class RuleStanding:
    """A rule with its results kept and its loss."""

    number: int
    name: str
    in_force: bool
    record: Any
    kept: float
    loss: float


def rule_standings(calibrated: Calibrated, shown: ShownQueries) -> list[RuleStanding]:
    """Measure the rule in force and the alternatives on the same queries."""
    rules: list[tuple[PolicyRecord | Alternative, PolicyKind]] = [
        (calibrated.policy, calibrated.policy.kind),
        *((rule, rule.policy) for rule in calibrated.manifest.alternatives),
    ]
    return [
        RuleStanding(
            number,
            METHODS[record.method].name(record.statement),
            number == 1,
            record,
            *_outcome(shown.queries, kind, record.tau, calibrated.policy.metric),
        )
        for number, (record, kind) in enumerate(rules, start=1)
    ]


def _outcome(queries: ScoredQueries, kind: PolicyKind, tau: float | None, metric: Metric) -> tuple[float, float]:
    kept = queries.kept(kind, None if tau is None else np.float32(tau))
    return float(kept.mean()), float(queries.judged.lost(metric, kept).mean())


def tradeoff_figures(calibrated: Calibrated, shown: ShownQueries, rules: list[RuleStanding]) -> list[Figure]:
    """Draw the curves up to a loss of 10 %, and enlarged near the rules if these are crowded at the left end."""
    far = max(_WIDEST, 1.1 * max(rule.loss for rule in rules))
    near = max(0.01, 2 * max(rule.loss for rule in rules), 2 * (calibrated.policy.max_loss or 0))
    widths = [("tradeoff", far, "")] + ([("tradeoff-near", near, ", near the rules")] if near <= far / 2 else [])
    return [_figure(calibrated, shown, rules, *width) for width in widths]


def _figure(
    calibrated: Calibrated, shown: ShownQueries, rules: list[RuleStanding], name: str, max_loss: float, suffix: str
) -> Figure:
    metric = calibrated.policy.metric
    lost = "queries lost" if metric == "accuracy" else f"NDCG@{calibrated.policy.k} lost"
    chart = Chart(
        name,
        f"Share of results kept against {lost}{suffix}",
        "One staircase per policy, the lower the better, and one numbered dot per rule.",
        Axis(0, max_loss, f"loss ({lost})", "percent"),
        Axis(0, 1.06, "results kept", "percent"),
    )
    keys = []
    limit = calibrated.policy.max_loss
    if limit is not None and limit <= max_loss:
        chart.upright(limit, "", "limit")
    for kind in calibrated.scored.kinds:
        chart.steps(*min_kept(shown.queries, kind, metric, max_loss), f"s-{kind}")
        keys.append(LegendEntry("line", f"s-{kind}", kind))
    if limit is not None and limit <= max_loss:
        keys.append(LegendEntry("mark", "limit", f"largest loss allowed: {percent(limit)}"))
    chart.dots(
        [
            Dot(
                rule.loss,
                rule.kept,
                str(rule.number),
                f"{rule.name}: keeps {percent(rule.kept)}, loses {percent(rule.loss, 2)}",
            )
            for rule in rules
        ]
    )
    keys += [
        LegendEntry("dot", "", f"{rule.number}: {rule.name}{', in force' if rule.in_force else ''}") for rule in rules
    ]
    return Figure.from_chart(chart, keys)


def min_kept(
    queries: ScoredQueries, kind: PolicyKind, metric: Metric, max_loss: float
) -> tuple[list[float], list[float]]:
    """Return losses up to `max_loss`, and the smallest share of results kept at each, with refusals."""
    decisions = queries.served(kind)
    steps = loss_steps(queries.judged, decisions, metric)
    ascending = np.sort(decisions.ravel())
    lowest = int(np.isneginf(steps.candidates).sum())  # 1 if a refused query loses its answer, which every τ does
    kept = 1 - np.searchsorted(ascending, steps.candidates[lowest:], side="left") / len(ascending)
    kept = np.concatenate([kept, [0.0]])  # above the last candidate, nothing is left to lose
    losses: NDArray[np.float64] = steps.losses[lowest:] / steps.queries
    reach = int(np.searchsorted(losses, max_loss * (1 + 1e-9), side="right"))
    if reach > _LEVELS:  # the last step at or below each of evenly spaced losses
        levels = np.linspace(0, losses[reach - 1], _LEVELS)
        taken = np.unique(np.searchsorted(losses, levels * (1 + 1e-9), side="right") - 1)
    else:
        taken = np.arange(reach)
    return [*losses[taken].tolist(), max_loss], [*kept[taken].tolist(), float(kept[taken[-1]])]


@dataclass(frozen=True)
class RetrievedDocument:
    """A retrieved document, with shortened texts."""

    id: str
    title: str  # title, or an empty text
    text: str
    rank: int
    score: float
    relevance: float | None
    decision: float


@dataclass(frozen=True)
class LostQuery:
    """A query that loses its answer."""

    id: str
    text: str
    part: str
    cause: str
    lost: RetrievedDocument
    top: RetrievedDocument | None


def lost_queries(calibrated: Calibrated) -> list[LostQuery]:
    """Return at most MAX_LOST queries that lose their answer to the threshold or to a refusal, held-out ones first.

    Those of each part are ordered by the similarity of their best relevant document, highest first.
    """
    judged = calibrated.scored.judged
    kept = calibrated.scored.kept(calibrated.policy.kind, calibrated.threshold)
    positions = np.flatnonzero(judged.lost("accuracy", kept) > 0)
    ranks = (judged.grades[positions] >= 1).argmax(axis=1)
    heldout = np.isin(positions, calibrated.parts["heldout"].members if "heldout" in calibrated.parts else [])
    order = np.lexsort((-judged.top.scores[positions, ranks], ~heldout))[:MAX_LOST]
    answering = calibrated.scored.answering
    lost = []
    for row, rank, out in zip(positions[order].tolist(), ranks[order].tolist(), heldout[order], strict=True):
        query = calibrated.search.dataset.answerable[row]
        refused = answering is not None and answering.answerable[row] < answering.threshold
        lost.append(
            LostQuery(
                query.id,
                shortened(query.text),
                "heldout" if out else "calibration",
                "refused" if refused else "dropped",
                retrieved_document(calibrated, row, rank),
                retrieved_document(calibrated, row, 0) if rank else None,
            )
        )
    return lost


def retrieved_document(calibrated: Calibrated, row: int, rank: int) -> RetrievedDocument:
    """Look up a result with its shortened texts.

    Args:
        row: Position of the query among the answerable ones.
        rank: Rank of the result, from 0.
    """
    scored = calibrated.scored
    document = calibrated.search.document(int(scored.judged.top.positions[row, rank]))
    return RetrievedDocument(
        id=document.id,
        title=shortened(document.title or ""),
        text=shortened(document.text),
        rank=rank + 1,
        score=float(scored.judged.top.scores[row, rank]),
        relevance=None if scored.relevance is None else float(scored.relevance[row, rank]),
        decision=float(scored.decisions(calibrated.policy.kind)[row, rank]),
    )


def shortened(text: str, length: int = _LONGEST) -> str:
    """Shorten a text at a word boundary to at most `length` characters, on one line, without control characters."""
    clean = "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in text[: 4 * length])
    words = " ".join(clean.split())
    if len(words) <= length:
        return words
    head = words[:length]
    return (head.rsplit(" ", 1)[0] if " " in head[length // 2 :] else head) + " …"
