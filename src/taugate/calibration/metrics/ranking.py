"""Labelled queries after one search: rankings, accuracy and NDCG, and the results that each policy keeps.

Searches that leave a query out of its own results, in data sets whose queries are documents of the corpus. The
parameter `own_passages` holds for each of q queries the positions of the passages that are the query itself
(`LabelledQuery.own`). It is empty unless the corpus holds the query under the same id.

Accuracy and NDCG are of documents. If a document is searched in chunks, its relevant chunk of the best rank is the hit,
and its further chunks gain nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.documents import (
    Parents,
    ResultDocuments,
    first_of_document,
    grades_of,
    relevant_passages,
)
from taugate.ingestion.dataset.labelled_queries import LabelledQuery
from taugate.retrieval.index.top_k import Searchable, TopK
from taugate.retrieval.policy.names import Metric, PolicyKind
from taugate.retrieval.policy.policy import NO_CUT, POLICIES, Mask, keep_answered, tried
from taugate.retrieval.vectors import Float32, QueryVectors

OwnPassages = Sequence[tuple[int, ...]]
Positions = NDArray[np.int64]

_PAIRS = 8192  # pairs of a query and a relevant passage scored at a time: a copy of 12 MB at 384 dimensions


def own_passages_of(queries: Iterable[LabelledQuery]) -> OwnPassages:
    """Return for each query the passages that are the query itself."""
    return [query.own_passages for query in queries]


def max_own_passages(own_passages: OwnPassages) -> int:
    """Return how many additional passages a search has to find so that enough remain for every query."""
    return max(map(len, own_passages), default=0)


def search_excluding_own(index: Searchable, own_passages: OwnPassages, vectors: QueryVectors, k: int) -> TopK:
    """Search every query for passages other than itself.

    Args:
        index: Index of N passages.
        own_passages: Passages that are the query itself, by query.
        vectors: (q, d) float32.
        k: Number of results per query.

    Returns:
        (q, min(k, N - `max_own_passages`)) results.
    """
    return exclude_own(own_passages, index.search(vectors, k + max_own_passages(own_passages)))


def exclude_own(own_passages: OwnPassages, top: TopK) -> TopK:
    """Leave each query out of its own (q, c) results; (q, c - `max_own_passages`) remain."""
    if not max_own_passages(own_passages):
        return top
    order = _others_first(own_passages, top.positions)
    return TopK(np.take_along_axis(top.scores, order, axis=1), np.take_along_axis(top.positions, order, axis=1))


def positions_excluding_own(own_passages: OwnPassages, positions: Positions) -> Positions:
    """Leave each query out of the (q, c) positions of its own results; (q, c - `max_own_passages`) remain."""
    return (
        np.take_along_axis(positions, _others_first(own_passages, positions), axis=1)
        if max_own_passages(own_passages)
        else positions
    )


def _others_first(own_passages: OwnPassages, positions: Positions) -> Positions:
    """Return the columns of other passages, in their order; (q, c - `max_own_passages`)."""
    is_own = np.zeros(positions.shape, dtype=np.bool_)
    for row, passages in enumerate(own_passages):
        if passages:
            is_own[row] = np.isin(positions[row], passages)
    return np.argsort(is_own, axis=1, kind="stable")[:, : positions.shape[1] - max_own_passages(own_passages)]


def accuracy(grades: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return 1.0 for each query with a kept relevant result in its top-K, else 0.0; (q,) float64.

    Args:
        grades: (q, K), as `grades_of` returns them.
        kept: (q, K).
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

    Ranks are those of the uncut list; dropped results gain nothing.

    Args:
        grades: (q, K), best first, as `grades_of` returns them.
        kept: (q, K), best first, at most one chunk of a document.
        ideal: (q,), `ideal_dcg` of each query.
    """
    dcg: NDArray[np.float64] = np.where(kept, np.abs(grades), 0) @ discounts(grades.shape[1])
    return dcg / ideal


@dataclass(frozen=True)
class JudgedQueries:
    """The results of q answerable queries, with their grades in the qrels.

    Attributes:
        top: The (q, K) most similar passages.
        grades: (q, K) int64, as `grades_of` returns them.
        ideal: (q,) float64, DCG@K of a perfect ranking of documents.
        correct: (q,) float32, S_corr, the similarity of the most similar relevant passage, retrieved or not.
        documents: Documents of the results, None if every passage is a document.
    """

    top: TopK
    grades: NDArray[np.int64]
    ideal: NDArray[np.float64]
    correct: Float32
    documents: ResultDocuments | None = None

    @classmethod
    def judge(
        cls, queries: Sequence[LabelledQuery], vectors: QueryVectors, index: Searchable, k: int, parents: Parents = None
    ) -> Self:
        """Search every query once; a query that is a document itself is left out of its own results.

        Args:
            queries: q queries.
            vectors: (q, d) float32, in the order of the queries.
            index: Index of the passages.
            k: K, the number of results per query.
            parents: Parents in the corpus.
        """
        top = search_excluding_own(index, own_passages_of(queries), vectors, k)
        grades = grades_of(queries, top.positions, parents)
        return cls(
            top=top,
            grades=grades,
            ideal=np.array([ideal_dcg(query.gains, k) for query in queries]),
            correct=_correct_similarity(queries, vectors, index, parents),
            documents=None if parents is None else ResultDocuments.of(queries, top.positions, grades, parents),
        )

    def __len__(self) -> int:
        return len(self.correct)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Take the queries at `rows`, in that order."""
        top = TopK(self.top.scores[rows], self.top.positions[rows])
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
    """Scores by which queries are answered or refused as a whole.

    Attributes:
        answerable: (n,) float32.
        unanswerable: (u,) float32.
        threshold: A query is answered if its score is not below this threshold.
        certified: Whether a certified loss includes queries that are refused. The threshold must not depend on the
            queries that certify then.
        fitted: Whether the threshold depends on the queries that fit the model of relevance, which then certify
            nothing.
        planned: The threshold before the certificate lowered it; None if it did not.
    """

    answerable: Float32
    unanswerable: Float32
    threshold: np.float32
    certified: bool = False
    fitted: bool = False
    planned: np.float32 | None = None


@dataclass(frozen=True)
class ScoredQueries:
    """The results and scores of n answerable and u unanswerable queries.

    Attributes:
        judged: Answerable queries with their results.
        unanswerable: Results of the unanswerable queries.
        relevance: (n, K) float32 probabilities, None if no model could be fitted.
        unanswerable_relevance: (u, K) float32 probabilities, None if no model could be fitted.
        answering: None if no query is refused as a whole.
        shares: Whether a share of the best score means something.
    """

    judged: JudgedQueries
    unanswerable: TopK
    relevance: Float32 | None
    unanswerable_relevance: Float32 | None
    answering: AnsweredQueries | None = None
    shares: bool = True

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

        Raises:
            ValueError: If no query is refused.
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
        of which one has to reach the threshold.

        Args:
            kind: Kind of the policy.
            threshold: Threshold of the policy, None for no cut.

        Returns:
            (n, k) and (u, k) float32 of answerable and unanswerable queries, and the threshold.
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


def _correct_similarity(
    queries: Sequence[LabelledQuery], vectors: QueryVectors, index: Searchable, parents: Parents
) -> Float32:
    """Return the similarity of the most similar relevant passage, the correct one (docs/calibration.md); (q,)."""
    passages = relevant_passages(queries, parents)
    owners = np.repeat(np.arange(len(queries)), [len(relevant) for relevant in passages])
    positions = np.concatenate([np.arange(0), *passages])
    correct = np.full(len(queries), -np.inf, dtype=np.float32)
    for start in range(0, len(owners), _PAIRS):
        pairs = slice(start, start + _PAIRS)
        scores = index.score(vectors[owners[pairs]], positions[pairs, None])[:, 0]
        np.maximum.at(correct, owners[pairs], scores)
    return correct
