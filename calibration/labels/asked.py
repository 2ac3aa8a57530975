"""Queries that people asked, judged or not, after one search: the samples that estimates are made of."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.labels.prediction_powered import labels_and_machine
from taugate.calibration.labels.shares import Float64, JudgedSample, ShareEstimates, UnjudgedSample, labels_alone
from taugate.calibration.metrics.clusters import Labels

Scores = NDArray[np.floating]
# The machine's score of every query, from its (q, K) relevances and decision scores; returns (q, c) float64.
Scoring = Callable[[Scores, Scores], Float64]


@dataclass(frozen=True)
class ScoredResults:
    """The results of q queries with what the machine says of them.

    decisions: (q, K) decision scores, which a threshold is compared with; relevance: (q, K) the machine's scores, each
    in 0…1.
    """

    decisions: Scores
    relevance: Scores


@dataclass(frozen=True)
class Comparison:
    """One kind of estimate from three sources, for c outcomes.

    alone: from the labels; both: from labels and machine; machine: (c,) means of the machine's scores, None without
    unjudged queries; r2: (c,) share of the variance among judged queries that the scores explain.
    """

    alone: ShareEstimates
    both: ShareEstimates
    machine: Float64 | None
    r2: Float64


@dataclass(frozen=True)
class AskedQueries:
    """The n queries that people judged, and the N that nobody did.

    judged: results of the judged queries; documents: (n,) cluster of each; weights: (n,) float64 above 0; answerable:
    (n,) bool; complete: (n,) bool, False for a query of which only what users saw was judged, so that it cannot be
    seen to be a miss; unjudged: results of the others, None where there are none.
    """

    judged: ScoredResults
    documents: Labels
    weights: Float64
    answerable: NDArray[np.bool_]
    complete: NDArray[np.bool_]
    unjudged: ScoredResults | None

    def sample(
        self, outcomes: Float64, scoring: Scoring, *, complete: bool
    ) -> tuple[JudgedSample, UnjudgedSample | None]:
        """Return the two samples that estimates take.

        outcomes: (n, c) float64 of the judged queries, each in 0…1; scoring: the machine's score of such an outcome;
        complete: leave out the queries that cannot be seen to be misses.
        """
        rows = np.flatnonzero(self.complete) if complete else np.arange(len(self.weights))
        scores = scoring(self.judged.relevance[rows], self.judged.decisions[rows])
        judged = JudgedSample(outcomes[rows], scores, self.documents[rows], self.weights[rows], self.answerable[rows])
        if self.unjudged is None:
            return judged, None
        # Nobody knows which documents answer the queries that nobody judged: each counts by itself.
        own = int(self.documents.max()) + 1 + np.arange(len(self.unjudged.decisions))
        return judged, UnjudgedSample(scoring(self.unjudged.relevance, self.unjudged.decisions), own)

    def compare(self, outcomes: Float64, scoring: Scoring, confidence: float, *, complete: bool) -> Comparison:
        """Estimate the shares of answerable queries with each outcome, from the labels, the machine, and both.

        outcomes, scoring, complete: as for `sample`; confidence: of each two-sided interval, in 0…1. The machine does
        not know which queries have no answer, so its means are divided by the share of answerable queries among those
        that were judged.
        """
        judged, unjudged = self.sample(outcomes, scoring, complete=complete)
        machine = None
        if unjudged is not None:
            answerable = float(judged.relative_weights @ judged.base) / len(judged.documents)
            machine = np.clip(np.vstack([judged.scores, unjudged.scores]).mean(axis=0) / answerable, 0.0, 1.0)
        return Comparison(
            alone=labels_alone(judged, confidence),
            both=labels_and_machine(judged, unjudged, confidence),
            machine=machine,
            r2=_explained(judged),
        )


def _explained(judged: JudgedSample) -> Float64:
    """Return R² of each outcome on its scores by the best straight line, over answerable queries; (c,).

    It is 0 where one of the two does not vary.
    """
    w = judged.relative_weights * judged.base
    y, f = judged.outcomes - w @ judged.outcomes / w.sum(), judged.scores - w @ judged.scores / w.sum()
    spread = (w @ np.square(y)) * (w @ np.square(f))
    found: Float64 = np.divide(np.square(w @ (y * f)), spread, out=np.zeros_like(spread), where=spread > 1e-18)
    return found
