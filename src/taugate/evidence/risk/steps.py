"""Loss as a function of τ: a staircase that rises at the decision score of each relevant result.

The loss of a query is paired: the metric without the cut less the metric with it, in 0…1, and it never falls as τ
rises. Only its steps are candidates: between two of them τ drops more results and loses nothing.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.evidence.clusters import SamplingUnits, Unit
from taugate.evidence.ranking import JudgedQueries, discounts
from taugate.evidence.risk.losses import DocumentBets, DocumentLosses
from taugate.policy.arrays import Float32
from taugate.policy.names import Metric


@dataclass(frozen=True)
class DocumentSteps:
    """The staircase by document: each step raises the loss of one document."""

    sizes: NDArray[np.float64]  # (d,) number of queries that each document counts for: its own, or the cap
    cap: int | None  # largest number of queries that a document counts for, None without a limit
    losable: NDArray[np.float64]  # (d,) total loss of these queries if everything is dropped
    documents: NDArray[np.int64]  # (s,) document of each step
    places: NDArray[np.int64]  # (s,) place in the staircase from which on the step counts, 1…c
    before: NDArray[np.float64]  # (s,) loss of the document below the step
    after: NDArray[np.float64]  # (s,) the same above it
    length: int  # c + 1, the length of the staircase

    def bets(self, delta: float) -> DocumentBets:
        """Return the bets against a mean loss of δ per query."""
        return DocumentBets.against(delta, self.losable, self.sizes)

    def log_e(self, delta: float) -> NDArray[np.float64]:
        """Return the logarithm of the e-value against δ at each place, (c + 1,) float64."""
        bets, sizes = self.bets(delta), self.sizes[self.documents]
        changes = bets.log_wealth(self.after, sizes) - bets.log_wealth(self.before, sizes)
        steps = np.array([np.bincount(self.places, change, minlength=self.length) for change in changes])
        return bets.log_e(self.lossless(bets)[:, None] + np.cumsum(steps, axis=1, dtype=np.float64))

    def lossless(self, bets: DocumentBets) -> NDArray[np.float64]:
        """Return the logarithm of the wealth of each bet if nothing is lost, (b,)."""
        wealth: NDArray[np.float64] = bets.log_wealth(np.zeros(len(self.sizes)), self.sizes).sum(axis=1)
        return wealth

    def losses_at(self, place: int) -> DocumentLosses:
        """Return the losses of the average query at one place of the staircase."""
        passed = self.places <= place
        rises = (self.after - self.before)[passed]
        losses = np.bincount(self.documents[passed], rises, minlength=len(self.sizes)).astype(np.float64)
        return DocumentLosses.from_documents(np.clip(losses, 0.0, self.losable), self.sizes, self.losable)


@dataclass(frozen=True)
class LossSteps:
    """Candidate thresholds and the loss of each.

    It is built of (q, K) float32 decision scores; without `units`, each query is its own unit.
    """

    queries: int  # n, with and without a step
    candidates: Float32  # (c,) observed decision scores, ascending
    # (c + 1,) float64, total loss of the n queries by the number of candidates strictly below τ. With a cap on the
    # queries of a document, a query counts for less than 1 (`SamplingUnits.weights`).
    losses: NDArray[np.float64]
    unit: Unit = "query"
    # The losses by unit; None if the units are queries whose losses are 0 or 1, which the total describes.
    documents: DocumentSteps | None = None

    @classmethod
    def of_accuracy(cls, queries: JudgedQueries, decisions: Float32, units: SamplingUnits | None = None) -> Self:
        """Count as lost a query that had a relevant document in its top-K and keeps none."""
        hits = np.flatnonzero(queries.relevant.any(axis=1))
        best = np.where(queries.relevant, decisions, -np.inf).max(axis=1)[hits]
        return cls._stairs(len(queries), hits, best.astype(np.float32), np.ones(len(hits)), units)

    @classmethod
    def of_ndcg(cls, queries: JudgedQueries, decisions: Float32, units: SamplingUnits | None = None) -> Self:
        """Count as lost the part of a query's NDCG@K that dropped documents had gained, by the ranks of the uncut list.

        If a document's first chunk is dropped and a later one is not, only the difference of their gains is lost.
        """
        gains = np.abs(queries.grades) * discounts(queries.grades.shape[1]) / queries.ideal[:, None]
        owners, ranks = np.nonzero(queries.grades)
        at, heights = decisions[owners, ranks], gains[owners, ranks]
        if queries.documents is not None:
            heights = _heights_by_document(owners, queries.documents.numbers[owners, ranks], at, heights)
            step = heights > 0
            owners, at, heights = owners[step], at[step], heights[step]
        if units is None or units.unit == "query":  # fractions need a term for each query
            units = SamplingUnits.from_clusters(np.arange(len(queries)))
        return cls._stairs(len(queries), owners, at, heights, units, fractions=True)

    @classmethod
    def of_empty(cls, decisions: Float32, units: SamplingUnits | None = None) -> Self:
        """Count as lost a query that gets no result."""
        every = np.arange(len(decisions))
        return cls._stairs(len(decisions), every, decisions.max(axis=1), np.ones(len(decisions)), units)

    @classmethod
    def _stairs(
        cls,
        queries: int,
        owners: NDArray[np.int64],
        at: Float32,
        height: NDArray[np.float64],
        units: SamplingUnits | None,
        *,
        fractions: bool = False,
    ) -> Self:
        """Add up the steps of single queries by (s,) owners, thresholds and heights, fractions of 1 or 1."""
        candidates, candidate = np.unique(at, return_inverse=True)
        weighted, documents = height, None
        if units is not None and (fractions or units.unit == "document"):
            weighted = height * units.weights()[owners]
            documents = _by_document(owners, candidate, weighted, len(candidates), units)
        heights = np.bincount(candidate, weights=weighted, minlength=len(candidates))
        losses = np.concatenate([[0.0], np.cumsum(heights)])
        return cls(queries, candidates, losses, "query" if units is None else units.unit, documents)

    @property
    def total(self) -> int:
        """Loss if every query is lost: n, or less with a cap on the queries of a document."""
        return self.queries if self.documents is None else int(self.documents.sizes.sum())

    @property
    def largest(self) -> int:
        """Largest loss of one unit."""
        return 1 if self.documents is None else int(self.documents.sizes.max())

    def places(self, thresholds: Float32) -> NDArray[np.int64]:
        """Return the number of candidates strictly below each of (t,) thresholds, the index into `losses`."""
        return np.searchsorted(self.candidates, thresholds, side="left")

    def at(self, thresholds: Float32) -> NDArray[np.float64]:
        """Return the total loss of the n queries, (t,) float64, at any (t,) float32 thresholds."""
        return self.losses[self.places(thresholds)]


def loss_steps(
    queries: JudgedQueries, decisions: Float32, metric: Metric, units: SamplingUnits | None = None
) -> LossSteps:
    """Build the staircase of a metric.

    Decision scores are (q, K). Without `units`, each query is its own unit.
    """
    return (LossSteps.of_accuracy if metric == "accuracy" else LossSteps.of_ndcg)(queries, decisions, units)


def _heights_by_document(
    owners: NDArray[np.int64], documents: NDArray[np.int32], at: Float32, gains: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how much NDCG falls as τ passes each relevant chunk, (s,); 0 if another chunk still gains as much."""
    # `owners` is (s,) rows, ascending; `documents` is (s,) documents of the chunks; `at` is (s,) decision scores;
    # `gains` is (s,) gains of the single chunks, in the order of ranks within a row.
    heights = gains.copy()
    gaining = None  # the chunk that counts for its document until τ passes it
    for place in np.lexsort((documents, owners)).tolist():  # by document, then by rank
        if gaining is None or (owners[gaining], documents[gaining]) != (owners[place], documents[place]):
            gaining = place
        elif at[place] > at[gaining]:
            heights[gaining] -= gains[place]
            gaining = place
        else:
            heights[place] = 0.0
    return heights


def _by_document(
    owners: NDArray[np.int64],
    candidate: NDArray[np.int64],
    height: NDArray[np.float64],
    candidates: int,
    units: SamplingUnits,
) -> DocumentSteps:
    """Add up the steps of queries by document."""
    document = np.unique(units.clusters, return_inverse=True)[1]
    order = np.lexsort((candidate, document[owners]))  # by document, then from its lowest step to its highest
    step_document, heights = document[owners[order]], height[order]
    total = np.cumsum(heights)
    first = np.searchsorted(step_document, step_document, side="left")
    below = np.concatenate([[0.0], total])[first]
    sizes = np.bincount(document).astype(np.float64)
    sizes = sizes if units.cap is None else np.minimum(sizes, units.cap)
    losable = np.bincount(step_document, heights, minlength=len(sizes)).astype(np.float64)
    after, places = np.minimum(total - below, losable[step_document]), candidate[order] + 1
    before = np.maximum(total - below - heights, 0.0)
    return DocumentSteps(sizes, units.cap, losable, step_document, places, before, after, candidates + 1)
