"""The gate: what is cheaper is admitted when it is shown to lose less than a margin, and refused with its evidence.

Every candidate answers the same queries as the exact, unprojected float32 baseline. Its loss is paired, baseline −
candidate per query, of accuracy@K and of NDCG@10, and both have to be non-inferior: the candidate's p-value is the
larger of the two (intersection–union test, Berger 1982, needs no correction). Several candidates give chance several
tries, so that their p-values are adjusted by Holm's method ("A simple sequentially rejective multiple test procedure",
Scand. J. Statist. 6, 1979): with the gate's confidence no inferior candidate is admitted at all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from calibration.data.dataset import LabelledQuery
from calibration.margin import Gate
from calibration.metrics.accuracy import accuracy
from calibration.metrics.judged import grades_of
from calibration.metrics.mean_loss import Labels, Losses, PerQuery
from calibration.metrics.ndcg import ideal_dcg, ndcg
from retrieval.release.gate import GateRecord, PairedLoss
from retrieval.release.interval import Interval

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


def judge(baseline: Outcome, candidates: Sequence[Candidate], labels: Labels, gate: Gate) -> list[GateRecord]:
    """The record of each candidate, in their order; labels: (q,) clusters of queries that share a document."""
    losses = [
        (Losses.of(baseline.accuracy - each.accuracy, labels), Losses.of(baseline.ndcg - each.ndcg, labels))
        for each in (candidate.outcome for candidate in candidates)
    ]
    p_values = np.array([max(one.p_value(gate.margin) for one in pair) for pair in losses])
    records = []
    for candidate, (hits, gains), adjusted in zip(candidates, losses, holm(p_values), strict=True):
        outcome = candidate.outcome
        records.append(
            GateRecord(
                candidate=candidate.name,
                kind=candidate.kind,
                admitted=bool(adjusted <= 1 - gate.confidence),
                accuracy=_paired(baseline.accuracy, outcome.accuracy, hits, gate),
                ndcg=_paired(baseline.ndcg, outcome.ndcg, gains, gate),
                p_adjusted=float(adjusted),
                margin=gate.margin,
                confidence=gate.confidence,
                n=len(labels),
                clusters=int(labels.max()) + 1,
                gain=candidate.gain,
            )
        )
    return records


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjusted p-values, at most 1, in the order given: at level α, those ≤ α are what Holm's method rejects."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return adjusted


def _paired(baseline: PerQuery, candidate: PerQuery, losses: Losses, gate: Gate) -> PairedLoss:
    lower, upper = losses.lower_limit(gate.confidence), losses.upper_limit(gate.confidence)
    return PairedLoss(
        baseline=float(baseline.mean()),
        candidate=float(candidate.mean()),
        loss=Interval(mean=losses.mean, lower=lower, upper=upper),
        p=losses.p_value(gate.margin),
    )
