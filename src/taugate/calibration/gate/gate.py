"""The gate admits a cheaper candidate that is shown to lose less than a margin, and refuses others with evidence.

Every candidate answers the same queries as the exact, unprojected float32 baseline. Its loss is paired, baseline −
candidate per query, of accuracy@K and of NDCG@10, and both have to be non-inferior: the candidate's p-value is the
larger of the two (intersection–union test, Berger 1982, needs no correction). Several candidates give chance several
tries, so that their p-values are adjusted by Holm's method ("A simple sequentially rejective multiple test procedure",
Scand. J. Statist. 6, 1979): with the gate's confidence no inferior candidate is admitted at all. A candidate that is
no cheaper, such as an adapted encoder, has to be better instead: its loss of NDCG@10 has to be below 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.gate.baseline import RankingOutcomes
from taugate.calibration.metrics.clusters import PerQuery, SamplingUnits
from taugate.calibration.risk.paired import MeanLoss, least_loss, paired_losses, sample_size_factor
from taugate.calibration.settings.settings import MARGIN, GateSettings
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.records import GateRecord, GateStatement, PairedLoss


@dataclass(frozen=True)
class GateCandidate:
    """Something cheaper that may serve in place of the baseline.

    Attributes:
        name: Its name in the record.
        kind: "precision", "projection", "index" or "adaptation".
        outcomes: Its outcomes of the queries that the baseline answered.
        gain: What it saves, by name: bytes a document, milliseconds, queries per second.
    """

    name: str
    kind: str
    outcomes: RankingOutcomes
    gain: dict[str, float] = field(default_factory=dict)


def judge(
    baseline: RankingOutcomes,
    candidates: Sequence[GateCandidate],
    units: SamplingUnits,
    gate: GateSettings,
    *,
    superior: bool = False,
) -> list[GateRecord]:
    """Judge candidates of one kind together, and return a record for each, in their order.

    Args:
        baseline: Outcomes of q queries by exact, unprojected float32 search.
        candidates: Candidates with their outcomes of the same q queries.
        units: What counts as one draw among the q queries.
        gate: Margin, MARGIN where it has none, and confidence.
        superior: Whether NDCG@10 has to be higher than the baseline's. The margin is then of accuracy alone.
    """
    margin = MARGIN if gate.margin is None else gate.margin
    margins = (margin, 0.0 if superior else margin)  # of accuracy and of NDCG@10
    losses = [
        (paired_losses(baseline.accuracy - each.accuracy, units), paired_losses(baseline.ndcg - each.ndcg, units))
        for each in (candidate.outcomes for candidate in candidates)
    ]
    p_values = np.array([_p_value(pair, margins) for pair in losses])
    least = least_loss(units, 1 - (1 - gate.confidence) / max(1, len(candidates)))
    records = []
    by_query = _query_p_values(baseline, candidates, units, margins)
    for candidate, pair, adjusted, p_query in zip(candidates, losses, holm(p_values), by_query, strict=True):
        admitted = bool(adjusted <= 1 - gate.confidence)
        worse = any(one.mean >= most for one, most in zip(pair, margins, strict=True))
        # Holm's strictest level, which is that of the smallest p-value.
        level = (1 - gate.confidence) / len(candidates)
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
                statement=_statement(units, p_query <= 1 - gate.confidence) if admitted else None,
                least=least,
                queries_needed=needed,
                gain=candidate.gain,
            )
        )
    return records


def _p_value(pair: Sequence[MeanLoss], margins: Sequence[float]) -> float:
    """Return the p-value of "a metric loses its margin or more".

    Args:
        pair: Of accuracy and of NDCG@10.
        margins: Of accuracy and of NDCG@10.
    """
    return max(one.p_value(margin) for one, margin in zip(pair, margins, strict=True))


def _query_p_values(
    baseline: RankingOutcomes, candidates: Sequence[GateCandidate], units: SamplingUnits, margins: Sequence[float]
) -> NDArray[np.float64]:
    """Adjusted p-value of each candidate for the average query, whatever the unit: the second statement of a record."""
    p_values = []
    for outcomes in (candidate.outcomes for candidate in candidates):
        differences = (baseline.accuracy - outcomes.accuracy, baseline.ndcg - outcomes.ndcg)
        p_values.append(_p_value([paired_losses(each, units, "query") for each in differences], margins))
    return holm(np.array(p_values))


def _statement(units: SamplingUnits, holds_for_queries: bool) -> GateStatement:
    """Whose mean loss is shown to be below the margin: the average query's, the average document's, or both."""
    if units.unit == "query":
        return "query"
    return "document and query" if holds_for_queries else "document"


def _needed(pair: Sequence[MeanLoss], margins: Sequence[float], level: float, queries: int) -> int | None:
    """Count the queries like these that would show that no metric loses its margin; None where no number would."""
    factors = [sample_size_factor(one, margin, level) for one, margin in zip(pair, margins, strict=True)]
    return None if None in factors else math.ceil(queries * max(each for each in factors if each is not None))


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjust p-values by Holm's method (Scand. J. Statist. 6, 1979); at level α it rejects those that are ≤ α.

    Args:
        p_values: (m,) float64.

    Returns:
        (m,) adjusted ones in the same order, at most 1.
    """
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
    """Return the line of progress that tells what the gate found of one candidate.

    Args:
        record: Of the candidate.
    """
    said = ", ".join(
        f"{name} {loss.candidate:.4f} after {loss.baseline:.4f} (loss ≤ {loss.loss.upper:+.4f})"
        for name, loss in (("accuracy", record.accuracy), ("NDCG@10", record.ndcg))
    )
    verdict = "admitted" if record.admitted else f"refused, {record.verdict}"
    of = {"document": " of the average document", "document and query": " of the average document and query"}
    told = "; more queries like these would not tell" if record.verdict == "cannot tell" else ""
    if record.queries_needed is not None:
        told = f"; about {record.queries_needed:,} queries like these would tell"
    return (
        f"gate: {record.candidate}: {verdict}, {said}; margin {record.margin:g}{of.get(record.statement or '', '')}, "
        f"p = {record.p_adjusted:.3g}; {record.n:,} queries can exclude a loss of {record.least:.4f} at best{told}"
    )
