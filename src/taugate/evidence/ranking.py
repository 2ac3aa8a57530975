"""Labelled queries after one search: rankings, accuracy and NDCG, and the results that each policy keeps.

Accuracy and NDCG are of documents. If a document is searched in chunks, its relevant chunk of the best rank is the hit,
and its further chunks gain nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, Ranking
from taugate.policy.names import NO_CUT, Metric, PolicyKind
from taugate.policy.policy import POLICIES, Mask, keep_answered, tried

Parents = NDArray[np.int32] | None


@dataclass(frozen=True)
class ResultDocuments:
    """The documents of q queries' results, K each, in a corpus that has chunks."""

    numbers: NDArray[np.int32]  # (q, K) the position of the first chunk of each result's document
    # (q, K), whether the qrels judge the result. If they name a document as a whole, only its best chunk is the hit;
    # its further chunks may or may not answer the query and are not labelled.
    labelled: Mask

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Take the queries at `rows`, in that order."""
        return type(self)(self.numbers[rows], self.labelled[rows])


def first_of_document(documents: NDArray[np.int32], shown: Mask) -> Mask:
    """Select the shown results that are the first of their document, (q, K).

    `documents` is (q, K), equal numbers in a row for chunks of one document; `shown` is (q, K), the results to
    consider.
    """
    order = np.argsort(documents, axis=1, kind="stable")  # by document, then by rank
    numbers, counted = np.take_along_axis(documents, order, axis=1), np.take_along_axis(shown, order, axis=1)
    total = np.cumsum(counted, axis=1)
    begins = np.ones(documents.shape, dtype=np.bool_)
    begins[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    before = np.maximum.accumulate(np.where(begins, total - counted, 0), axis=1)  # shown results of earlier documents
    first = np.empty(shown.shape, dtype=np.bool_)
    np.put_along_axis(first, order, counted & (total - before == 1), axis=1)
    return first


def accuracy(grades: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return 1.0 for each query with a kept relevant result in its top-K, else 0.0; (q,) float64.

    `grades` is (q, K), as `grades_of` returns them; `kept` is (q, K).
    """
    hits: NDArray[np.bool_] = np.any((grades >= 1) & kept, axis=1)
    return hits.astype(np.float64)


def discounts(k: int) -> NDArray[np.float64]:
    """Return 1 / log2(rank + 1) for the ranks 1…k."""
    return 1.0 / np.log2(np.arange(2, k + 2))


def ideal_dcg(grades: Collection[int], k: int) -> float:
    """Return DCG@K of the documents that gain, by their grades ≥ 1, in the best order."""
    best = np.array(sorted(grades, reverse=True)[:k], dtype=np.float64)
    return float(best @ discounts(len(best)))


def ndcg(grades: NDArray[np.int64], kept: NDArray[np.bool_], ideal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return NDCG@K of each query over its kept results, (q,) in 0…1.

    Ranks are those of the uncut list; dropped results gain nothing. `grades` is (q, K), best first, as `grades_of`
    returns them; `kept` is (q, K), best first, at most one chunk of a document; `ideal` is (q,), `ideal_dcg` of each
    query.
    """
    dcg: NDArray[np.float64] = np.where(kept, np.abs(grades), 0) @ discounts(grades.shape[1])
    return dcg / ideal


@dataclass(frozen=True)
class JudgedQueries:
    """The results of q answerable queries, with their grades in the qrels."""

    top: Ranking  # the (q, K) most similar passages
    grades: NDArray[np.int64]  # (q, K) as `grades_of` returns them
    ideal: NDArray[np.float64]  # (q,) DCG@K of a perfect ranking of documents
    correct: Float32  # (q,) S_corr, the similarity of the most similar relevant passage, retrieved or not
    documents: ResultDocuments | None = None  # documents of the results, None if every passage is a document

    def __len__(self) -> int:
        return len(self.correct)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Take the queries at `rows`, in that order."""
        top = Ranking(self.top.scores[rows], self.top.positions[rows])
        documents = self.documents and self.documents.take(rows)
        return type(self)(top, self.grades[rows], self.ideal[rows], self.correct[rows], documents)

    @property
    def relevant(self) -> Mask:
        """Mask of the results that are relevant passages, (q, K)."""
        return self.grades >= 1

    @property
    def labelled(self) -> Mask:
        """Mask of the results that the qrels judge, (q, K): all but some chunks (`ResultDocuments`)."""
        return self._all if self.documents is None else self.documents.labelled

    def accuracy(self, kept: Mask | None = None) -> NDArray[np.float64]:
        """Return the top-K accuracy of each query, (q,), over all its results or those in the (q, K) mask `kept`."""
        return accuracy(self.grades, self._all if kept is None else kept)

    def ndcg(self, kept: Mask | None = None) -> NDArray[np.float64]:
        """Return NDCG@K of each query, (q,), over all its results or those in the (q, K) mask `kept`."""
        shown = self._all if kept is None else kept
        if self.documents is not None:
            shown = first_of_document(self.documents.numbers, shown & (self.grades != 0))
        return ndcg(self.grades, shown, self.ideal)

    def metric(self, name: Metric, kept: Mask | None = None) -> NDArray[np.float64]:
        """Return accuracy or NDCG by name, (q,), over all results or those in the (q, K) mask `kept`."""
        return self.accuracy(kept) if name == "accuracy" else self.ndcg(kept)

    def lost(self, name: Metric, kept: Mask) -> NDArray[np.float64]:
        """Return each query's loss of a metric, (q,) in 0…1, if only the results in the (q, K) mask `kept` remain."""
        return self.metric(name) - self.metric(name, kept)

    @property
    def _all(self) -> Mask:
        return np.ones(self.grades.shape, dtype=np.bool_)


@dataclass(frozen=True)
class AnsweredQueries:
    """Scores by which queries are answered or refused as a whole."""

    answerable: Float32  # (n,)
    unanswerable: Float32  # (u,)
    threshold: np.float32  # a query is answered if its score is not below this threshold
    # Whether a certified loss includes queries that are refused. The threshold must not depend on the queries that
    # certify then.
    certified: bool = False
    # Whether the threshold depends on the queries that fit the model of relevance, which then certify nothing.
    fitted: bool = False
    planned: np.float32 | None = None  # the threshold before the certificate lowered it; None if it did not


@dataclass(frozen=True)
class ScoredQueries:
    """The results and scores of n answerable and u unanswerable queries."""

    judged: JudgedQueries
    unanswerable: Ranking
    relevance: Float32 | None  # (n, K) probabilities, None if no model could be fitted
    unanswerable_relevance: Float32 | None  # (u, K) probabilities, None if no model could be fitted
    answering: AnsweredQueries | None = None  # None if no query is refused as a whole
    shares: bool = True  # whether a share of the best score means something

    @property
    def kinds(self) -> tuple[PolicyKind, ...]:
        """Policies that `auto` may use, in order of preference."""
        return self.without_model if self.relevance is None else tried(zero=self.shares)

    @property
    def without_model(self) -> tuple[PolicyKind, ...]:
        """Those that need no model of relevance."""
        return tuple(kind for kind in tried(zero=self.shares) if not POLICIES[kind].needs_model)

    def decisions(self, kind: PolicyKind) -> Float32:
        """Return the policy's decision scores of the answerable queries, (n, K) float32."""
        return POLICIES[kind].decide(self.judged.top.scores, self.relevance)

    def certifying(self, kind: PolicyKind) -> Float32:
        """Return the decision scores that certify a loss, (n, K) float32: with refusals if the loss includes them.

        A lowered ρ ends the path of the certificate. So every cut would lose what the planned ρ loses.
        """
        answering = self.answering
        if answering is None or not answering.certified:
            return self.decisions(kind)
        served = self.served(kind)
        if answering.planned is not None:
            kept = (answering.answerable >= answering.threshold) & (answering.answerable < answering.planned)
            served[kept] = NO_CUT
        return served

    def refusals(self) -> Float32:
        """Return decision scores by which queries are lost as ρ rises, (n, K) float32: ∞ if they are answered at ρ.

        Raises ValueError if no query is refused.
        """
        if self.answering is None:
            raise ValueError("no query is refused")
        scores, threshold = self.answering.answerable, self.answering.threshold
        rising = np.where(scores < threshold, scores, np.float32(np.inf))
        return np.broadcast_to(rising[:, None], self.judged.grades.shape)

    def served(self, kind: PolicyKind) -> Float32:
        """Return decision scores by which the loss of a cut includes refusals, (n, K) float32.

        They are −∞ for all results of a refused query, and the largest of all for the best result of an answered one,
        which is always kept (`keep_answered`). So comparing them with any of them gives the results that users get.
        """
        decisions = self.decisions(kind)
        if self.answering is None:
            return decisions
        answered = self.answering.answerable >= self.answering.threshold
        served = np.where(answered[:, None], decisions, np.float32(-np.inf))
        served[answered, 0] = decisions.max(initial=-np.inf)
        return served

    def unanswerable_decisions(self, kind: PolicyKind) -> Float32:
        """Return the policy's decision scores of the unanswerable queries, (u, K) float32."""
        return POLICIES[kind].decide(self.unanswerable.scores, self.unanswerable_relevance)

    def kept(self, kind: PolicyKind, threshold: np.float32 | None) -> Mask:
        """Return the mask of results that users get for the answerable queries, (n, K); no threshold means no cut."""
        answered = None if self.answering is None else self.answering.answerable >= self.answering.threshold
        return keep_answered(self.decisions(kind), threshold, answered)

    def unanswerable_kept(self, kind: PolicyKind, threshold: np.float32 | None) -> Mask:
        """Return the mask of results that users get for the unanswerable queries, (u, K); no threshold means no cut."""
        answered = None if self.answering is None else self.answering.unanswerable >= self.answering.threshold
        return keep_answered(self.unanswerable_decisions(kind), threshold, answered)

    def deciding(self, kind: PolicyKind, threshold: np.float32 | None) -> tuple[Float32, Float32, np.float32 | None]:
        """Return the scores that decide whether a query gets any result, and the threshold they have to reach.

        This is the score of the query as a whole, k = 1. Without one, these are the decision scores of its K results,
        of which one has to reach the threshold. Returns (n, k) and (u, k) float32 of answerable and unanswerable
        queries, and the threshold.
        """
        if self.answering is None:
            return self.decisions(kind), self.unanswerable_decisions(kind), threshold
        answering = self.answering
        return answering.answerable[:, None], answering.unanswerable[:, None], answering.threshold

    def take(self, rows: NDArray[np.int64]) -> "ScoredQueries":
        """Take the answerable queries at `rows`, with all of the unanswerable ones."""
        relevance = None if self.relevance is None else self.relevance[rows]
        answering = self.answering and replace(self.answering, answerable=self.answering.answerable[rows])
        return ScoredQueries(
            self.judged.take(rows), self.unanswerable, relevance, self.unanswerable_relevance, answering, self.shares
        )
