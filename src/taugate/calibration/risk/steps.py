"""Loss as a function of τ: a staircase that rises where τ passes the decision score of a relevant result.

Per query the loss is paired: the metric without the cut less the metric with it, in 0…1, and it never falls as τ rises.
Its steps are the only candidates worth a look: between two of them τ drops more results and loses nothing.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import JudgedQueries, discounts
from taugate.calibration.risk.e_values import log_wealth
from taugate.retrieval.policy.policy import Metric
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class DocumentSteps:
    """The same staircase as evidence by document.

    Attributes:
        sizes: (d,) queries of each document.
        wealth: (stakes, c + 1) float64, the logarithm of Π (1 − θ·x) over documents, x the mean loss of a document's
            queries, when τ has so many candidates strictly below it.
    """

    sizes: NDArray[np.int64]
    wealth: NDArray[np.float64]


@dataclass(frozen=True)
class LossSteps:
    """Candidate thresholds and the loss of each.

    Attributes:
        queries: n, with and without a step.
        candidates: (c,) float32 observed decision scores, ascending.
        losses: (c + 1,) float64, total loss of the n queries when τ has so many candidates strictly below it.
        binary: Whether the loss of one query is 0 or 1 and nothing between.
        documents: None where each query is a draw of its own.
    """

    queries: int
    candidates: Float32
    losses: NDArray[np.float64]
    binary: bool
    documents: DocumentSteps | None = None

    @classmethod
    def of_accuracy(cls, queries: JudgedQueries, decisions: Float32, units: SamplingUnits | None = None) -> Self:
        """Count as lost a query that had a relevant document in its top-K and keeps none.

        Args:
            queries: q answerable queries with their results.
            decisions: (q, K) float32 decision scores.
            units: What counts as one draw among them, None for each query by itself.
        """
        hits = np.flatnonzero(queries.relevant.any(axis=1))
        best = np.where(queries.relevant, decisions, -np.inf).max(axis=1)[hits]
        return cls._stairs(len(queries), hits, best.astype(np.float32), np.ones(len(hits)), units, binary=True)

    @classmethod
    def of_ndcg(cls, queries: JudgedQueries, decisions: Float32, units: SamplingUnits | None = None) -> Self:
        """Count as lost the part of a query's NDCG@K that dropped documents had gained, by the ranks of the uncut list.

        Where a document's first chunk is dropped and a later one is not, what is lost is the difference of their ranks.

        Args:
            queries: q answerable queries with their results.
            decisions: (q, K) float32 decision scores.
            units: What counts as one draw among them, None for each query by itself.
        """
        gains = queries.grades * discounts(queries.grades.shape[1]) / queries.ideal[:, None]
        owners, ranks = np.nonzero(queries.relevant)
        at, heights = decisions[owners, ranks], gains[owners, ranks]
        if queries.documents is not None:
            heights = _heights_by_document(owners, queries.documents.numbers[owners, ranks], at, heights)
            step = heights > 0
            owners, at, heights = owners[step], at[step], heights[step]
        return cls._stairs(len(queries), owners, at, heights, units, binary=False)

    @classmethod
    def of_empty(cls, decisions: Float32, units: SamplingUnits | None = None) -> Self:
        """Count as lost a query that is answered with nothing.

        Args:
            decisions: (q, K) float32 decision scores.
            units: What counts as one draw among the q queries, None for each by itself.
        """
        every = np.arange(len(decisions))
        return cls._stairs(len(decisions), every, decisions.max(axis=1), np.ones(len(decisions)), units, binary=True)

    @classmethod
    def _stairs(
        cls,
        queries: int,
        owners: NDArray[np.int64],
        at: Float32,
        height: NDArray[np.float64],
        units: SamplingUnits | None,
        *,
        binary: bool,
    ) -> Self:
        """Add up the steps of single queries, (s,) each: whose they are, `at` which threshold, and their height."""
        candidates, which = np.unique(at, return_inverse=True)
        heights = np.bincount(which, weights=height, minlength=len(candidates))
        losses = np.concatenate([[0.0], np.cumsum(heights)])
        documents = None
        if units is not None and units.unit == "document":
            documents = _by_document(owners, which, height, len(candidates), units)
        return cls(queries, candidates, losses, binary, documents)

    def places(self, thresholds: Float32) -> NDArray[np.int64]:
        """Return how many candidates are strictly below each threshold, its place in `losses`.

        Args:
            thresholds: (t,) float32.
        """
        return np.searchsorted(self.candidates, thresholds, side="left")

    def at(self, thresholds: Float32) -> NDArray[np.float64]:
        """Return the total loss of the n queries, (t,) float64, at any (t,) float32 thresholds."""
        return self.losses[self.places(thresholds)]


def loss_steps(
    queries: JudgedQueries, decisions: Float32, metric: Metric, units: SamplingUnits | None = None
) -> LossSteps:
    """Build the staircase of the metric that is to be kept.

    Args:
        queries: q answerable queries with their results.
        decisions: (q, K) float32 decision scores.
        metric: Accuracy or ndcg.
        units: What counts as one draw among them, None for each query by itself.
    """
    return (LossSteps.of_accuracy if metric == "accuracy" else LossSteps.of_ndcg)(queries, decisions, units)


def _heights_by_document(
    owners: NDArray[np.int64], documents: NDArray[np.int32], at: Float32, gains: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how much NDCG falls where τ passes each relevant chunk, (s,); 0 where another chunk still gains as much.

    Args:
        owners: (s,) rows, ascending.
        documents: (s,).
        at: (s,) decision scores.
        gains: (s,) of the chunk alone; all in the order of ranks within a row.
    """
    heights = gains.copy()
    gaining = None  # the chunk that its document gains by until τ passes it
    for place in np.lexsort((documents, owners)).tolist():  # document by document, each by rank
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
    which: NDArray[np.int64],
    height: NDArray[np.float64],
    candidates: int,
    units: SamplingUnits,
) -> DocumentSteps:
    """Turn steps of queries into wealth by document: each step raises the mean loss of one document."""
    document = np.unique(units.labels, return_inverse=True)[1]
    sizes = np.bincount(document)
    order = np.lexsort((which, document[owners]))  # document by document, each from its lowest step to its highest
    whose, heights = document[owners[order]], height[order]
    total = np.cumsum(heights)
    first = np.searchsorted(whose, whose, side="left")
    before = np.concatenate([[0.0], total])[first]
    after = np.minimum((total - before) / sizes[whose], 1.0)
    down = np.maximum((total - before - heights) / sizes[whose], 0.0)
    change = log_wealth(after) - log_wealth(down)
    steps = np.zeros((len(change), candidates + 1))
    for stake, each in enumerate(change):
        steps[stake, 1:] = np.bincount(which[order], weights=each, minlength=candidates)
    return DocumentSteps(sizes.astype(np.int64), np.cumsum(steps, axis=1))
