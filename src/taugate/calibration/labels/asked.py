"""Queries that people asked, judged or not, after one search: the samples that estimates are made of.

Users judge only what the service shows them. Where none of that is relevant, the query may still have an answer. So a
query from traffic says what a threshold loses only of the queries that find their answer:

    share lost = (share lost of those that find it) · (share of the answerable queries that find it)

The second factor is the accuracy A of the queries that were judged whole. So a query from traffic stands for 1/A
answerable queries. A is an estimate, and its error is a part of the interval: to first order, the ratio Σ w·y / Σ w·b
varies as one with the bases

    b = 1/A                       for a query from traffic that found its answer,
    b = a − T/(A·H) · (h − A·a)   for a query that was judged whole,

where h is 1 for a query that found its answer, H is Σ w·h over the queries judged whole, and T is Σ w over those from
traffic that found their answer (the delta method; Cochran, Sampling Techniques, 1977, §6.3). Where A rests on fewer
than 50 answerable queries, or on fewer than five hits or misses, b is h: the share is then one of the queries that find
their answer. That share is larger, so an upper limit on it still holds.

The machine has no say where traffic counts. Queries that users judged are not a random sample of those they ask: more
of them find their answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.labels.prediction_powered import MIN_OUTCOMES, labels_and_machine
from taugate.calibration.labels.shares import Float64, JudgedSample, ShareEstimates, UnjudgedSample, labels_alone
from taugate.calibration.metrics.clusters import Labels

Scores = NDArray[np.floating]
# With fewer answerable queries that were judged whole, their accuracy is too uncertain to take traffic by.
_MIN_WHOLE = 50
# The machine's score of every query, from its (q, K) relevances and decision scores; returns (q, c) float64.
Scoring = Callable[[Scores, Scores], Float64]


@dataclass(frozen=True)
class ScoredResults:
    """The results of q queries with what the machine says of them.

    Attributes:
        decisions: (q, K) decision scores, which a threshold is compared with.
        relevance: (q, K) the machine's scores, each in 0…1.
    """

    decisions: Scores
    relevance: Scores


@dataclass(frozen=True)
class Comparison:
    """One kind of estimate from three sources, for c outcomes.

    Attributes:
        alone: From the labels.
        both: From labels and machine.
        machine: (c,) means of the machine's scores, None without unjudged queries.
        r2: (c,) share of the variance among judged queries that the scores explain, 0 where the machine has no say.
    """

    alone: ShareEstimates
    both: ShareEstimates
    machine: Float64 | None
    r2: Float64


@dataclass(frozen=True)
class AskedQueries:
    """The n queries that people judged, and the N that nobody did.

    Attributes:
        judged: Results of the judged queries.
        documents: (n,) cluster of each.
        weights: (n,) float64 above 0.
        answerable: (n,) bool.
        found: (n,) bool, whether a result is relevant.
        complete: (n,) bool, False for a query of which only what users saw was judged, so that it cannot be seen to be
            a miss.
        unjudged: Results of the others, None where there are none.
    """

    judged: ScoredResults
    documents: Labels
    weights: Float64
    answerable: NDArray[np.bool_]
    found: NDArray[np.bool_]
    complete: NDArray[np.bool_]
    unjudged: ScoredResults | None

    def sample(
        self, outcomes: Float64, scoring: Scoring, *, complete: bool
    ) -> tuple[JudgedSample, UnjudgedSample | None]:
        """Return the two samples that estimates take.

        Args:
            outcomes: (n, c) float64 of the judged queries, each in 0…1.
            scoring: The machine's score of such an outcome.
            complete: Leave out the queries that cannot be seen to be misses.
        """
        rows = np.flatnonzero(self.complete) if complete else np.arange(len(self.weights))
        scores = scoring(self.judged.relevance[rows], self.judged.decisions[rows])
        judged = JudgedSample(
            outcomes[rows],
            scores,
            self.documents[rows],
            self.weights[rows],
            self.answerable[rows],
            None if self.complete[rows].all() else self._bases(),
        )
        if self.unjudged is None or judged.bases is not None:  # the machine has no say where traffic counts
            return judged, None
        # Nobody knows which documents answer the queries that nobody judged: each counts by itself.
        own = int(self.documents.max()) + 1 + np.arange(len(self.unjudged.decisions))
        return judged, UnjudgedSample(scoring(self.unjudged.relevance, self.unjudged.decisions), own)

    def compare(self, outcomes: Float64, scoring: Scoring, confidence: float, *, complete: bool) -> Comparison:
        """Estimate the shares of answerable queries with each outcome, from the labels, the machine, and both.

        Args:
            outcomes: As for `sample`.
            scoring: As for `sample`.
            confidence: Of each two-sided interval, in 0…1. The machine does not know which queries have no answer, so
                its means are divided by the share of answerable queries among those that were judged whole.
            complete: As for `sample`.
        """
        judged, unjudged = self.sample(outcomes, scoring, complete=complete)
        whole, others = self.sample(outcomes, scoring, complete=True)
        machine = None
        if others is not None:
            answerable = float(whole.relative_weights @ whole.base) / len(whole.documents)
            machine = np.clip(np.vstack([whole.scores, others.scores]).mean(axis=0) / answerable, 0.0, 1.0)
        return Comparison(
            alone=labels_alone(judged, confidence),
            both=labels_and_machine(judged, unjudged, confidence),
            machine=machine,
            r2=np.zeros(outcomes.shape[1]) if unjudged is None else _explained(judged),
        )

    def _bases(self) -> Float64:
        """Return b of each query, (n,) float64."""
        a, h = self.answerable.astype(np.float64), self.found.astype(np.float64)
        if not h.any():
            return a
        hits = self.found & self.complete
        misses = self.answerable & self.complete & ~self.found
        if min(hits.sum(), misses.sum()) < MIN_OUTCOMES or (hits | misses).sum() < _MIN_WHOLE:
            return h
        accuracy = float(self.weights @ hits / (self.weights @ (hits | misses)))
        seen = float(self.weights @ (self.found & ~self.complete))
        of_accuracy = seen / (accuracy * float(self.weights @ hits))
        return np.where(self.complete, a - of_accuracy * (h - accuracy * a), h / accuracy)


def _explained(judged: JudgedSample) -> Float64:
    """Return R² of each outcome on its scores by the best straight line, over answerable queries; (c,).

    It is 0 where one of the two does not vary.
    """
    w = judged.relative_weights * judged.base
    y, f = judged.outcomes - w @ judged.outcomes / w.sum(), judged.scores - w @ judged.scores / w.sum()
    spread = (w @ np.square(y)) * (w @ np.square(f))
    found: Float64 = np.divide(np.square(w @ (y * f)), spread, out=np.zeros_like(spread), where=spread > 1e-18)
    return found
