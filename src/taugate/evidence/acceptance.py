"""The gate accepts a cheaper candidate if it is shown to lose less than a margin, and records the evidence.

Every candidate answers the same queries as the exact, unprojected float32 baseline. Its losses of accuracy@K and of
NDCG@10 are paired, baseline − candidate per query. It has to be non-inferior in both, so its p-value is the larger of
the two (intersection–union test, Berger 1982, needs no correction). Because each further candidate is another chance of
a false acceptance, the p-values are adjusted by Holm's method ("A simple sequentially rejective multiple test
procedure", Scand. J. Statist. 6, 1979): with the gate's confidence, no inferior candidate is accepted. A candidate that
is not cheaper, such as an adapted encoder, has to be better instead: its loss of NDCG@10 has to be below 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.evidence.clusters import PerQuery, SamplingUnits
from taugate.evidence.risk.losses import MeanLoss, min_detectable_loss, paired_losses, sample_size_factor
from taugate.evidence.rules import MARGIN, GateSettings
from taugate.release.evidence import Interval
from taugate.release.search_records import GateRecord, GateStatement, PairedLoss

DEPTH = 10  # depth of NDCG in the query embeddings paper and in BEIR


@dataclass(frozen=True)
class RankingOutcomes:
    """Accuracy@K and NDCG@10 of each of q queries."""

    accuracy: PerQuery  # (q,) 0 or 1
    ndcg: PerQuery  # (q,) in 0…1
    ids: tuple[str, ...] = ()  # ids of the queries; empty if they are not known

    def shifted(self, before: Self, after: Self) -> Self:
        """Add the change from `before` to `after`, two outcomes of the same q queries, query by query."""
        accuracy, ndcg = after.accuracy - before.accuracy, after.ndcg - before.ndcg
        return replace(self, accuracy=self.accuracy + accuracy, ndcg=self.ndcg + ndcg)


@dataclass(frozen=True)
class GateCandidate:
    """A candidate that may replace the baseline: a cheaper one, or an adapted encoder."""

    name: str
    kind: str  # "lexical", "precision", "projection", "index" or "adaptation"
    outcomes: RankingOutcomes
    # Savings by name: bytes per document, milliseconds, queries per second.
    gain: dict[str, float] = field(default_factory=dict)
    # Instructions of the processor that the gain was measured with, None if they do not matter.
    processor: str | None = None
    # Whether it is proven to return what the search that it replaces returns, so that no test is needed.
    exact: bool = False


def judge(
    baseline: RankingOutcomes,
    candidates: Sequence[GateCandidate],
    units: SamplingUnits,
    gate: GateSettings,
    *,
    superior: bool = False,
    sequences: Sequence[int] = (),
) -> list[GateRecord]:
    """Test candidates of one kind together, and return their records in order.

    `baseline` is by exact, unprojected float32 search. `superior`: NDCG@10 has to be higher than the baseline's; the
    margin then applies to accuracy alone. `sequences` are the lengths of the sequences that the candidates form, each
    tested in order until one is not accepted; none if they have no order.
    """
    margin = MARGIN if gate.margin is None else gate.margin
    margins = (margin, 0.0 if superior else margin)  # of accuracy and of NDCG@10
    # The strictest level: of Holm's method it applies to the smallest p-value, of a sequence to all.
    level = (1 - gate.confidence) / max(1, len(sequences or candidates))
    losses = [
        (
            paired_losses(baseline.accuracy - outcomes.accuracy, units, level=level),
            paired_losses(baseline.ndcg - outcomes.ndcg, units, level=level),
        )
        for outcomes in (candidate.outcomes for candidate in candidates)
    ]
    p_values = np.array([_p_value(pair, margins) for pair in losses])
    detectable = min_detectable_loss(units, 1 - level)
    records = []
    query_p_values = adjusted_p_values(_query_p_values(baseline, candidates, units, margins, level), sequences)
    all_adjusted = adjusted_p_values(p_values, sequences)
    for candidate, pair, adjusted, p_query in zip(candidates, losses, all_adjusted, query_p_values, strict=True):
        shown = bool(adjusted <= 1 - gate.confidence)
        admitted = candidate.exact or shown
        worse = any(loss.mean >= limit for loss, limit in zip(pair, margins, strict=True))
        needed = None if admitted or worse else _needed(pair, margins, level, len(units))
        records.append(
            GateRecord(
                candidate=candidate.name,
                kind=candidate.kind,
                admitted=admitted,
                verdict="admitted" if admitted else "worse" if worse else "cannot tell",
                accuracy=_paired(baseline.accuracy, candidate.outcomes.accuracy, pair[0], margins[0], gate.confidence),
                ndcg=_paired(baseline.ndcg, candidate.outcomes.ndcg, pair[1], margins[1], gate.confidence),
                p_adjusted=float(adjusted),
                margin=margin,
                confidence=gate.confidence,
                n=len(units),
                clusters=units.documents,
                evidence=units.record,
                statement=_statement(units, p_query <= 1 - gate.confidence) if shown else None,
                least=detectable,
                queries_needed=needed,
                gain=candidate.gain,
                processor=candidate.processor,
                decided_by=None if admitted or worse else _deciding(baseline, candidate.outcomes, pair, margins, units),
            )
        )
    return records


def _p_value(pair: Sequence[MeanLoss], margins: Sequence[float]) -> float:
    """Return the p-value of the null hypothesis that accuracy or NDCG@10 loses at least its margin."""
    return max(loss.p_value(margin) for loss, margin in zip(pair, margins, strict=True))


def _deciding(
    baseline: RankingOutcomes,
    outcomes: RankingOutcomes,
    pair: Sequence[MeanLoss],
    margins: Sequence[float],
    units: SamplingUnits,
) -> str | None:
    """Say which lost query decides, the one that is most of its document; None if documents are not the unit."""
    by_accuracy = pair[0].p_value(margins[0]) >= pair[1].p_value(margins[1])
    losses = baseline.accuracy - outcomes.accuracy if by_accuracy else baseline.ndcg - outcomes.ndcg
    lost = int((losses > 0).sum())
    if units.unit == "query" or not lost or not baseline.ids:
        return None
    documents, sizes = np.unique(units.clusters, return_inverse=True, return_counts=True)[1:]
    means = np.bincount(documents, losses) / sizes
    row = int(np.lexsort((-losses, -means[documents]))[0])
    size, its = int(sizes[documents[row]]), "its" if lost == 1 else "their"
    what = f"lost {its} answer" if by_accuracy else f"rank {its} answers lower"
    of = "the only one about its document" if size == 1 else f"one of {size:,} about its document"
    return f"{lost:,} of {len(units):,} queries {what}; what decides is {baseline.ids[row]}, {of}"


def _query_p_values(
    baseline: RankingOutcomes,
    candidates: Sequence[GateCandidate],
    units: SamplingUnits,
    margins: Sequence[float],
    level: float,
) -> NDArray[np.float64]:
    """Return the candidates' p-values for the mean loss over queries instead of documents."""
    p_values = []
    for outcomes in (candidate.outcomes for candidate in candidates):
        differences = (baseline.accuracy - outcomes.accuracy, baseline.ndcg - outcomes.ndcg)
        p_values.append(_p_value([paired_losses(loss, units, "query", level) for loss in differences], margins))
    return np.array(p_values)


def _statement(units: SamplingUnits, holds_for_queries: bool) -> GateStatement:
    """Return the unit whose mean loss is shown to be below the margin: query, document, or both."""
    if units.unit == "query":
        return "query"
    return "document and query" if holds_for_queries else "document"


def _needed(pair: Sequence[MeanLoss], margins: Sequence[float], level: float, queries: int) -> int | None:
    """Estimate how many queries like these would show that neither loss reaches its margin; None if no number would."""
    factors = [sample_size_factor(loss, margin, level) for loss, margin in zip(pair, margins, strict=True)]
    return None if None in factors else math.ceil(queries * max(factor for factor in factors if factor is not None))


def adjusted_p_values(p_values: NDArray[np.float64], sequences: Sequence[int]) -> NDArray[np.float64]:
    """Adjust (m,) p-values by Holm's method, or those of sequences in their fixed order.

    The first of a sequence that is not rejected ends it, so it costs no more than its first hypothesis (Maurer, Hothorn
    and Lehmacher 1995); several sequences divide the level equally.
    """
    if not sequences:
        return holm(p_values)
    parts = np.split(p_values, np.cumsum(sequences)[:-1])
    adjusted: NDArray[np.float64] = np.concatenate([np.maximum.accumulate(part) for part in parts])
    return np.minimum(1.0, len(sequences) * adjusted)


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjust (m,) p-values by Holm's method; null hypotheses whose adjusted p-value is ≤ α are rejected at level α."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return adjusted


def _paired(baseline: PerQuery, candidate: PerQuery, losses: MeanLoss, margin: float, confidence: float) -> PairedLoss:
    lower, upper = losses.lower_limit(confidence), losses.upper_limit(confidence)
    return PairedLoss(
        baseline=float(baseline.mean()),
        candidate=float(candidate.mean()),
        loss=Interval(mean=losses.mean, lower=lower, upper=upper),
        p=losses.p_value(margin),
    )


def gate_line(record: GateRecord) -> str:
    """Return the progress line for a candidate's record."""
    losses = ", ".join(
        f"{name} {loss.candidate:.4f} (baseline {loss.baseline:.4f}, loss ≤ {loss.loss.upper:+.4f})"
        for name, loss in (("accuracy", record.accuracy), ("NDCG@10", record.ndcg))
    )
    verdict = "accepted" if record.admitted else f"rejected, {record.verdict}"
    units = {"document": " of the average document", "document and query": " of the average document and query"}
    average = units.get(record.statement or "", "")
    needed = "; more queries like these would not show it" if record.verdict == "cannot tell" else ""
    if record.queries_needed is not None:
        needed = f"; about {record.queries_needed:,} queries like these would show it"
    if record.decided_by is not None:
        needed += f". {record.decided_by}"
    return (
        f"gate: {record.candidate}: {verdict}, {losses}; margin {record.margin:g}{average}, "
        f"p = {record.p_adjusted:.3g}; {record.n:,} queries cannot exclude a loss below {record.least:.4f}{needed}"
    )
