"""Show what a threshold costs: what each rule keeps for what it loses, and the queries that lose their answer."""

import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.charts.chart import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.charts.numbers import percent, rule_name
from taugate.calibration.metrics.ranking import ScoredQueries
from taugate.calibration.report.abstaining import ShownQueries
from taugate.calibration.risk.steps import loss_steps
from taugate.calibration.study.study import Findings
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.policy.policy import Metric, PolicyKind, keep
from taugate.retrieval.release.evidence import Alternative
from taugate.retrieval.release.manifest import PolicyRecord

_WIDEST = 0.10
_LEVELS = 200  # steps drawn of a curve; there may be one for each query
MAX_LOST = 20  # queries shown
_LONGEST = 300  # characters shown of a text


@dataclass(frozen=True)
class RuleStanding:
    """A rule, with what it keeps and loses.

    Attributes:
        number: Its label in the drawing.
        name: Of the rule.
        in_force: Whether it is.
        record: As in the manifest.
        kept: In 0…1.
        loss: In 0…1.
    """

    number: int
    name: str
    in_force: bool
    record: Any
    kept: float
    loss: float


def rule_standings(found: Findings, shown: ShownQueries) -> list[RuleStanding]:
    """Measure the rule in force, then the others, all on the same queries.

    Args:
        found: Findings of the study.
        shown: The queries.
    """
    rules: list[tuple[PolicyRecord | Alternative, PolicyKind]] = [
        (found.policy, found.policy.kind),
        *((each, each.policy) for each in found.alternatives),
    ]
    return [
        RuleStanding(
            number,
            rule_name(record.method, record.statement),
            number == 1,
            record,
            *_outcome(shown.queries, kind, record.tau, found.policy.metric),
        )
        for number, (record, kind) in enumerate(rules, start=1)
    ]


def _outcome(queries: ScoredQueries, kind: PolicyKind, tau: float | None, metric: Metric) -> tuple[float, float]:
    kept = keep(queries.decisions(kind), None if tau is None else np.float32(tau))
    return float(kept.mean()), float(queries.judged.lost(metric, kept).mean())


def tradeoff_figures(found: Findings, shown: ShownQueries, rules: list[RuleStanding]) -> list[Figure]:
    """Draw the curves up to a loss of 10 %, and once more near the rules where they are crowded at its left end.

    Args:
        found: Findings of the study.
        shown: The queries.
        rules: Numbered.
    """
    far = max(_WIDEST, 1.1 * max(rule.loss for rule in rules))
    near = max(0.01, 2 * max(rule.loss for rule in rules), 2 * (found.policy.max_loss or 0))
    widths = [("tradeoff", far, "")] + ([("tradeoff-near", near, ", near the rules")] if near <= far / 2 else [])
    return [_figure(found, shown, rules, *width) for width in widths]


def _figure(
    found: Findings, shown: ShownQueries, rules: list[RuleStanding], name: str, widest: float, where: str
) -> Figure:
    metric = found.policy.metric
    lost = "queries lost" if metric == "accuracy" else f"NDCG@{found.policy.k} lost"
    chart = Chart(
        name,
        f"Share of results kept against {lost}{where}",
        "One staircase for each policy, the lower the better, and one numbered dot for each rule.",
        Axis(0, widest, f"loss ({lost})", "percent"),
        Axis(0, 1.06, "results kept", "percent"),
    )
    keys = []
    limit = found.policy.max_loss
    if limit is not None and limit <= widest:
        chart.upright(limit, "", "limit")
    for kind in found.scored.kinds:
        chart.steps(*least_kept(shown.queries, kind, metric, widest), f"s-{kind}")
        keys.append(LegendEntry("line", f"s-{kind}", kind))
    if limit is not None and limit <= widest:
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


def least_kept(
    queries: ScoredQueries, kind: PolicyKind, metric: Metric, widest: float
) -> tuple[list[float], list[float]]:
    """Return losses from 0 to `widest` with the smallest share of results that a threshold can keep for each.

    Args:
        queries: With their results.
        kind: Of the policy.
        metric: Whose loss it is.
        widest: Loss, in 0…1.
    """
    decisions = queries.decisions(kind)
    steps = loss_steps(queries.judged, decisions, metric)
    ascending = np.sort(decisions.ravel())
    kept = 1 - np.searchsorted(ascending, steps.candidates, side="left") / len(ascending)
    kept = np.concatenate([kept, [0.0]])  # above the last candidate nothing more can be lost
    losses: NDArray[np.float64] = steps.losses / steps.queries
    reach = int(np.searchsorted(losses, widest * (1 + 1e-9), side="right"))
    if reach > _LEVELS:  # the last step at or below each of evenly spaced losses
        levels = np.linspace(0, losses[reach - 1], _LEVELS)
        taken = np.unique(np.searchsorted(losses, levels * (1 + 1e-9), side="right") - 1)
    else:
        taken = np.arange(reach)
    return [*losses[taken].tolist(), widest], [*kept[taken].tolist(), float(kept[taken[-1]])]


@dataclass(frozen=True)
class RetrievedDocument:
    """A retrieved document.

    Attributes:
        id: Shortened.
        title: Shortened.
        text: Shortened.
        rank: From 1, in the uncut list.
        score: Similarity.
        relevance: Probability, None without a model.
        decision: What was compared with τ.
    """

    id: str
    title: str
    text: str
    rank: int
    score: float
    relevance: float | None
    decision: float


@dataclass(frozen=True)
class LostQuery:
    """A query that the cut loses.

    Attributes:
        id: Shortened.
        text: Shortened.
        part: Calibration or heldout.
        lost: Its most similar relevant document.
        top: The first result, where it is another.
    """

    id: str
    text: str
    part: str
    lost: RetrievedDocument
    top: RetrievedDocument | None


@dataclass(frozen=True)
class LostQueries:
    """All queries that the cut loses.

    Attributes:
        total: How many.
        first: Some of them, those with the most similar relevant document.
    """

    total: int
    first: list[LostQuery]


def lost_queries(dataset: Dataset, found: Findings) -> LostQueries:
    """Find the lost queries among all answerable ones, whichever part they are in.

    Args:
        dataset: Texts of queries and documents.
        found: Findings of the study.
    """
    positions, ranks = lost_positions(found)
    heldout = set(found.parts["heldout"].members.tolist()) if "heldout" in found.parts else set()
    first = []
    for row, rank in zip(positions[:MAX_LOST].tolist(), ranks[:MAX_LOST].tolist(), strict=True):
        query = dataset.answerable[row]
        first.append(
            LostQuery(
                query.id,
                shortened(query.text),
                "heldout" if row in heldout else "calibration",
                retrieved_document(dataset, found, row, rank),
                retrieved_document(dataset, found, row, 0) if rank else None,
            )
        )
    return LostQueries(len(positions), first)


def lost_positions(found: Findings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return positions of the lost queries, and the rank, from 0, of each one's best relevant document.

    The query whose relevant document is most similar comes first. A query that is refused as a whole is not lost to the
    threshold.

    Args:
        found: Findings of the study.
    """
    judged = found.scored.judged
    kept = found.scored.kept(found.policy.kind, found.threshold)
    lost = judged.lost("accuracy", kept) > 0
    if found.scored.answering is not None:
        lost &= kept.any(axis=1)
    positions = np.flatnonzero(lost)
    ranks = (judged.grades[positions] >= 1).argmax(axis=1)
    order = np.argsort(-judged.top.scores[positions, ranks], kind="stable")
    return positions[order], ranks[order]


def retrieved_document(dataset: Dataset, found: Findings, row: int, rank: int) -> RetrievedDocument:
    """Look up a result with its texts, shortened.

    Args:
        dataset: Texts of the documents.
        found: Findings of the study.
        row: Of the query among the answerable ones.
        rank: Of the result, from 0.
    """
    scored = found.scored
    document = dataset.documents[int(scored.judged.top.positions[row, rank])]
    return RetrievedDocument(
        id=document.id,
        title=shortened(document.title or ""),
        text=shortened(document.text),
        rank=rank + 1,
        score=float(scored.judged.top.scores[row, rank]),
        relevance=None if scored.relevance is None else float(scored.relevance[row, rank]),
        decision=float(scored.decisions(found.policy.kind)[row, rank]),
    )


def shortened(text: str, length: int = _LONGEST) -> str:
    """Cut a text between words, on one line and without control characters.

    Args:
        text: Any.
        length: Characters, at most.
    """
    clean = "".join(" " if unicodedata.category(each) == "Cc" else each for each in text[: 4 * length])
    words = " ".join(clean.split())
    if len(words) <= length:
        return words
    head = words[:length]
    return (head.rsplit(" ", 1)[0] if " " in head[length // 2 :] else head) + " …"
