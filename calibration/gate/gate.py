"""The gate: what is cheaper is admitted when it is shown to lose less than a margin, and refused with its evidence.

Every candidate answers the same queries as the exact, unprojected float32 baseline. Its loss is paired, baseline −
candidate per query, of accuracy@K and of NDCG@10, and both have to be non-inferior: the candidate's p-value is the
larger of the two (intersection–union test, Berger 1982, needs no correction). Several candidates give chance several
tries, so that their p-values are adjusted by Holm's method ("A simple sequentially rejective multiple test procedure",
Scand. J. Statist. 6, 1979): with the gate's confidence no inferior candidate is admitted at all.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import Units
from taugate.calibration.metrics.mean_loss import PerQuery
from taugate.calibration.metrics.ranking import accuracy, grades_of, ideal_dcg, ndcg
from taugate.calibration.risk.paired import MeanLoss, least_loss, more, paired_losses
from taugate.calibration.settings.settings import MARGIN, GateSettings
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import Index
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.records import GateRecord, GateStatement, PairedLoss
from taugate.retrieval.vectors.similarity import Float32

DEPTH = 10  # of NDCG: the depth that the query embeddings paper and BEIR report


@dataclass(frozen=True)
class Outcome:
    """What each of q queries got: accuracy@K, 0 or 1, and NDCG@10; (q,) each."""

    accuracy: PerQuery
    ndcg: PerQuery

    @classmethod
    def of(cls, queries: Sequence[LabelledQuery], positions: NDArray[np.int64], k: int) -> Self:
        """positions: (q, max(K, 10)) documents found, best first, fewer where the corpus has no more."""
        grades = grades_of(queries, positions)
        found = np.ones(grades.shape, dtype=np.bool_)
        ideal = np.array([ideal_dcg(query.relevant.values(), DEPTH) for query in queries])
        deep = slice(None), slice(DEPTH)
        return cls(accuracy(grades[:, :k], found[:, :k]), ndcg(grades[deep], found[deep], ideal))

    def moved(self, before: Self, after: Self) -> Self:
        """With the change from one outcome to another of the same queries added, query by query."""
        return type(self)(
            self.accuracy + after.accuracy - before.accuracy,
            self.ndcg + after.ndcg - before.ndcg,
        )


@dataclass(frozen=True)
class Candidate:
    """One cheaper way. name: of itself; kind: projection, precision, index; gain: what it saves, by name."""

    name: str
    kind: str
    outcome: Outcome
    gain: dict[str, float] = field(default_factory=dict)


# What judges candidates against one baseline: their records, in their order.
Judge = Callable[[Sequence[Candidate]], list[GateRecord]]


def judge(baseline: Outcome, candidates: Sequence[Candidate], units: Units, gate: GateSettings) -> list[GateRecord]:
    """The record of each candidate, in their order; units: of the q queries. The gate has a margin."""
    margin = MARGIN if gate.margin is None else gate.margin
    losses = [
        (paired_losses(baseline.accuracy - each.accuracy, units), paired_losses(baseline.ndcg - each.ndcg, units))
        for each in (candidate.outcome for candidate in candidates)
    ]
    p_values = np.array([max(one.p_value(margin) for one in pair) for pair in losses])
    least = least_loss(units, 1 - (1 - gate.confidence) / max(1, len(candidates)))
    records = []
    tests = zip(candidates, losses, holm(p_values), _of_queries(baseline, candidates, units, margin), strict=True)
    for candidate, pair, adjusted, of_queries in tests:
        admitted = bool(adjusted <= 1 - gate.confidence)
        worse = any(one.mean >= margin for one in pair)
        # What Holm's method wanted of this candidate, where its p-value is not adjusted to more than it is.
        level = (1 - gate.confidence) / len(candidates)
        needed = None if admitted or worse else _needed(pair, margin, level, len(units))
        records.append(
            GateRecord(
                candidate=candidate.name,
                kind=candidate.kind,
                admitted=admitted,
                verdict="admitted" if admitted else "worse" if worse else "cannot tell",
                accuracy=_paired(baseline.accuracy, candidate.outcome.accuracy, pair[0], margin, gate.confidence),
                ndcg=_paired(baseline.ndcg, candidate.outcome.ndcg, pair[1], margin, gate.confidence),
                p_adjusted=float(adjusted),
                margin=margin,
                confidence=gate.confidence,
                n=len(units),
                clusters=units.documents,
                evidence=units.record,
                statement=_statement(units, of_queries <= 1 - gate.confidence) if admitted else None,
                least=least,
                queries_needed=needed,
                gain=candidate.gain,
            )
        )
    return records


def _of_queries(baseline: Outcome, candidates: Sequence[Candidate], units: Units, margin: float) -> NDArray[np.float64]:
    """Adjusted p-value of each candidate for the average query, whatever the unit: the second thing that is said."""
    return holm(
        np.array(
            [
                max(
                    paired_losses(each, units, "query").p_value(margin)
                    for each in (baseline.accuracy - outcome.accuracy, baseline.ndcg - outcome.ndcg)
                )
                for outcome in (candidate.outcome for candidate in candidates)
            ]
        )
    )


def _statement(units: Units, of_queries: bool) -> GateStatement:
    """Of whom it was shown that they lose less than the margin; of queries where the labels suffice for that, too."""
    if units.unit == "query":
        return "query"
    return "document and query" if of_queries else "document"


def _needed(pair: Sequence[MeanLoss], margin: float, level: float, queries: int) -> int | None:
    """So many queries like these would show that neither metric loses the margin, None where none would."""
    factors = [more(one, margin, level) for one in pair]
    return None if None in factors else math.ceil(queries * max(each for each in factors if each is not None))


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjusted p-values, at most 1, in the order given: at level α, those ≤ α are what Holm's method rejects."""
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


@dataclass(frozen=True)
class Trial:
    """Queries to be answered, q of them with (q, d) vectors, from (N, d) documents, at K."""

    queries: Sequence[LabelledQuery]
    vectors: Float32
    documents: Float32
    k: int

    @property
    def depth(self) -> int:
        """How many results are judged."""
        return max(self.k, DEPTH)

    def outcome(self, index: Index | None = None) -> Outcome:
        """By `index`, and without one by exact search."""
        top = (index or FlatIndex.build(self.documents)).search(self.vectors, self.depth)
        return Outcome.of(self.queries, top.positions, self.k)


def gate_line(record: GateRecord) -> str:
    """What the gate says of one candidate."""
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
