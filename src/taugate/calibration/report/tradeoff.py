"""The cost of a threshold: results kept against answers lost by each rule, and the queries that lose their answer."""

import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.charts import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.formats import percent
from taugate.calibration.report.abstaining import ShownQueries
from taugate.calibration.study.outcomes import Calibrated
from taugate.evidence.ranking import ScoredQueries
from taugate.evidence.risk.steps import loss_steps
from taugate.policy.names import Metric, PolicyKind
from taugate.release.evidence import Alternative
from taugate.release.names import METHODS
from taugate.release.outcome_records import PolicyRecord

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
