"""Users' queries, judged or not, after one search: the samples and machine scores that estimates are made of.

Scores of queries from the relevance of their results: probability of a hit, and of a loss at a threshold. These are
scores for prediction-powered estimates. They may be wrong, and they treat the results of a query as independent, which
they are not: human judgements correct for both. A language model's judgements of the results, 0 or 1, can replace the
probabilities.

Users judge only the results that the service shows. If none of them is relevant, the query may still have an answer. So
a query from traffic shows what a threshold loses only among the queries that find their answer:

    share lost = (share lost of those that find it) · (share of the answerable queries that find it)

The second factor is the accuracy A of the completely judged queries, so a query from traffic stands for 1/A answerable
queries. A is an estimate, and the interval includes its error: to first order, the ratio Σ w·y / Σ w·b varies as one
with the bases

    b = 1/A                       for a query from traffic that found its answer,
    b = a − T/(A·H) · (h − A·a)   for a completely judged query,

with h = 1 for a query that found its answer, H = Σ w·h over the completely judged queries, and T = Σ w over those from
traffic that found their answer (the delta method; Cochran, Sampling Techniques, 1977, §6.3). If A rests on fewer than
50 answerable queries, or on fewer than five hits or misses, b is h: the share is then one of the queries that find
their answer. That share is larger, so an upper limit on it still holds.

The machine is not used if traffic counts. Queries that users judged are not a random sample of those they ask: more of
them find their answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.evidence.clusters import ClusterIds
from taugate.evidence.few_labels.prediction_powered import MIN_OUTCOMES, labels_and_machine
from taugate.evidence.few_labels.shares import JudgedSample, ShareEstimates, UnjudgedSample, labels_alone
from taugate.policy.arrays import Float64

Scores = NDArray[np.floating]
# With fewer completely judged answerable queries, their accuracy is too uncertain to weight traffic by it.
_MIN_COMPLETE = 50
# The machine's score of every query, from its (q, K) relevances and decision scores; returns (q, c) float64.
Scoring = Callable[[Scores, Scores], Float64]


def hit_scores(relevance: NDArray[np.floating]) -> Float64:
    """Return for each query the probability that one of its results is relevant, (q, 1) float64: 1 − Π (1 − p).

    `relevance` is (q, K) probability of each result, in 0…1.
    """
    none: Float64 = np.prod(1 - relevance.astype(np.float64), axis=1, keepdims=True)
    return 1 - none


def loss_scores(
    relevance: NDArray[np.floating], decisions: NDArray[np.floating], thresholds: NDArray[np.floating]
) -> Float64:
    """Return for each query and threshold the probability that the threshold loses it, (q, c) float64.

    A query is lost if it has a relevant result and no relevant result is kept: Π over kept results of (1 − p), less Π
    over all. `relevance` is (q, K) probability of each result, in 0…1; `decisions` is (q, K) decision scores;
    `thresholds` is (c,) thresholds of the decision score; a result whose score is not below is kept.
    """
    irrelevant = 1 - relevance.astype(np.float64)
    lost = np.empty((len(relevance), len(thresholds)))
    for column, threshold in enumerate(thresholds):
        lost[:, column] = np.prod(np.where(decisions >= threshold, irrelevant, 1.0), axis=1)
    nothing_relevant: Float64 = np.prod(irrelevant, axis=1, keepdims=True)
    return lost - nothing_relevant


def losses(relevant: NDArray[np.bool_], decisions: NDArray[np.floating], thresholds: NDArray[np.floating]) -> Float64:
    """Return the true loss of each query at each threshold, (q, c) float64: 1 if every relevant result is dropped.

    `relevant` is (q, K), judgements by people; `decisions` is (q, K) decision scores; `thresholds` is (c,) thresholds
    of the decision score.
    """
    return loss_scores(relevant.astype(np.float64), decisions, thresholds)


@dataclass(frozen=True)
class ScoredResults:
    """The results of q queries with the machine's scores."""

    decisions: Scores  # (q, K) decision scores, which a threshold is compared with
    relevance: Scores  # (q, K) scores by the machine, in 0…1


@dataclass(frozen=True)
class SourceComparison:
    """Estimates of c outcomes from three sources."""

    alone: ShareEstimates
    both: ShareEstimates
    machine: Float64 | None  # (c,) means of the machine's scores, None without unjudged queries
    r2: Float64  # (c,) share of the variance among judged queries that the scores explain, 0 if the machine is not used


@dataclass(frozen=True)
class QueryPopulation:
    """A sample of users' queries: n judged and N unjudged ones."""

    judged: ScoredResults
    documents: ClusterIds  # (n,) cluster of each judged query
    weights: Float64  # (n,) above 0
    answerable: NDArray[np.bool_]  # (n,) bool
    hits: NDArray[np.bool_]  # (n,) whether a result is relevant
    # (n,) bool, False if only the results that users saw were judged, so that the query cannot be shown to be a miss.
    complete: NDArray[np.bool_]
    unjudged: ScoredResults | None  # results of the unjudged queries, None if there are none

    def sample(
        self, outcomes: Float64, scoring: Scoring, *, complete: bool
    ) -> tuple[JudgedSample, UnjudgedSample | None]:
        """Return the judged and the unjudged sample of an outcome.

        `outcomes` are (n, c) float64 of the judged queries, in 0…1; `scoring` is the machine's score of such an
        outcome; `complete` leaves out the queries that were not completely judged.
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
        if self.unjudged is None or judged.bases is not None:  # the machine is not used if traffic counts
            return judged, None
        # The documents that answer unjudged queries are unknown, so every unjudged query is its own cluster.
        singletons = int(self.documents.max()) + 1 + np.arange(len(self.unjudged.decisions))
        return judged, UnjudgedSample(scoring(self.unjudged.relevance, self.unjudged.decisions), singletons)

    def compare(self, outcomes: Float64, scoring: Scoring, confidence: float, *, complete: bool) -> SourceComparison:
        """Estimate the shares of answerable queries with each outcome, from the labels, the machine, and both.

        The machine does not know which queries have no answer, so its means are divided by the share of answerable
        queries among the completely judged ones. Arguments are those of `sample`; the confidence is that of each
        two-sided interval.
        """
        judged, unjudged = self.sample(outcomes, scoring, complete=complete)
        complete_sample, unjudged_scores = self.sample(outcomes, scoring, complete=True)
        machine = None
        if unjudged_scores is not None:
            answerable = float(complete_sample.relative_weights @ complete_sample.base) / len(complete_sample.documents)
            scores = np.vstack([complete_sample.scores, unjudged_scores.scores])
            machine = np.clip(scores.mean(axis=0) / answerable, 0.0, 1.0)
        return SourceComparison(
            alone=labels_alone(judged, confidence),
            both=labels_and_machine(judged, unjudged, confidence),
            machine=machine,
            r2=np.zeros(outcomes.shape[1]) if unjudged is None else _explained(judged),
        )

    def _bases(self) -> Float64:
        """Return b of each query, (n,) float64."""
        a, h = self.answerable.astype(np.float64), self.hits.astype(np.float64)
        if not h.any():
            return a
        hits = self.hits & self.complete
        misses = self.answerable & self.complete & ~self.hits
        if min(hits.sum(), misses.sum()) < MIN_OUTCOMES or (hits | misses).sum() < _MIN_COMPLETE:
            return h
        accuracy = float(self.weights @ hits / (self.weights @ (hits | misses)))
        seen = float(self.weights @ (self.hits & ~self.complete))
        of_accuracy = seen / (accuracy * float(self.weights @ hits))
        return np.where(self.complete, a - of_accuracy * (h - accuracy * a), h / accuracy)


def _explained(judged: JudgedSample) -> Float64:
    """Return R² of each outcome on its scores by the best straight line, over answerable queries; (c,)."""
    # It is 0 if one of the two does not vary.
    w = judged.relative_weights * judged.base
    y, f = judged.outcomes - w @ judged.outcomes / w.sum(), judged.scores - w @ judged.scores / w.sum()
    variation = (w @ np.square(y)) * (w @ np.square(f))
    r2: Float64 = np.divide(np.square(w @ (y * f)), variation, out=np.zeros_like(variation), where=variation > 1e-18)
    return r2
