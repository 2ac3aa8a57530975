"""The model of relevance, from similarities or from scores alone: fitted on some queries and recalibrated on others.

Logistic regression gives the probability that a retrieved document is relevant; the strength of its penalty comes from
cross-validation. The model learns from results that the qrels judge. If the qrels name a
document that is searched in chunks, its best chunk is relevant and its other chunks are unknown: calling them
irrelevant would teach the model that passages of the right document are wrong, and calling them relevant that every
page of it answers the query.

With questions that no document answers, relevance is P(on topic) · P(relevant | on topic), recalibrated for a mixture
of answerable and unanswerable queries. Off-topic questions fit the first factor. Questions close to the documents only
take part in the recalibration: a factor that tells them from answerable queries has no lower calibration error, and
moves results of answerable queries below those of others, so that cuts keep more (benchmarks/decisions.md,
"Relevance of questions without an answer").
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.calibration.encoding.corpus import EncodedTexts, Lengths
from taugate.calibration.metrics.inputs import DeepFigures, SearchedQueries, clusters, judge_queries
from taugate.data.beir import Dataset
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.ranking import JudgedQueries
from taugate.evidence.relevance import fitting
from taugate.policy.arrays import CorpusVectors, Float32, Float64, QueryVectors, Ranking, mean_and_covariance
from taugate.policy.policy import Mask
from taugate.policy.relevance import (
    FEATURES,
    QUERY_FEATURES,
    Background,
    ComputedBackground,
    Logistic,
    OnTopic,
    ReadDocuments,
    Relevance,
    features,
)
from taugate.policy.score_relevance import Components, ScoreRelevance, score_features
from taugate.release.outcome_records import Machine
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.hybrid import words_of
from taugate.retrieval.index.top_k import Index, Searchable

# C of the factor P(on topic), and the share of off-topic questions that it assumes. With a half, as in the mixture, it
# also lowers unusual queries that have an answer, and cuts by probability keep up to .03 more results. Of .5, .1, .03
# and .01 and of .03, 1 and 30, on cosqa and covidqa_chunks, this share and C have the lowest Brier score on off-topic
# questions among those that keep no more results at a loss of 2 and 5 %.
_ON_TOPIC_STRENGTH, _OFF_TOPIC_SHARE = 1.0, 0.1


@dataclass(frozen=True)
class EstimatedCorpusRelevance(fitting.EstimatedRelevance):
    """A model of vectors that was fitted in this calibration, with its probabilities."""

    relevance: Relevance


def estimate_relevance(
    judged: JudgedQueries,
    vectors: QueryVectors,
    roles: QueryRoles,
    documents: CorpusVectors,
    lengths: Lengths,
    unanswered: fitting.Unanswered | None = None,
) -> EstimatedCorpusRelevance | None:
    """Fit on the fitting queries, recalibrate on the other calibration queries, and score every result.

    None if the results of the fitting queries are all relevant or all irrelevant. One thread makes the same data give
    the same bits.

    The recalibration rises strictly, so nothing that it learns from certifying queries, or from questions made from
    them, moves a result past another. All else is fitted on the fitting queries and on off-topic questions.

    Args:
        judged: The n answerable queries with their results.
        vectors: (n, d) float32 vectors of these queries.
        documents: (N, d) float32, in memory or not.
        lengths: (N,) bytes of each document.
        unanswered: Questions that no document answers; None to take for granted that every query has an answer.
    """
    with threadpool_limits(limits=1):
        background = _background(documents, vectors[roles.fit], lengths)
        k = judged.top.scores.shape[1]
        rows = background.rows(judged.top.positions)
        values = features(judged.top.scores, background.of_queries(vectors), rows, k)
        relevant, labelled = judged.relevant, judged.labelled
        fitted = fitting.fit_relevance(values[roles.fit], relevant[roles.fit], roles.clusters, labelled[roles.fit])
        if fitted is None:
            return None
        unseen = roles.not_fitting
        questions: list[Float64] = []
        shares: list[float] = []
        if unanswered is not None:
            for kind in unanswered.learning:
                rows, of_queries = background.rows(kind.top.positions), background.of_queries(kind.vectors)
                questions.append(features(kind.top.scores, of_queries, rows, k))
            shares = fitting.kind_shares(unanswered.learning)
            fitted = _with_on_topic(fitted, fit_on_topic(values[roles.fit], questions[0]), values[roles.fit])
        model = fitting.map_probabilities(
            fitted.model, values[unseen], relevant[unseen], labelled[unseen], questions, shares
        )
        relevance = Relevance(model, background, k)
        return EstimatedCorpusRelevance(
            relevance, answerable=model.probability(values).astype(np.float32), unanswered=unanswered, fit=fitted
        )


def apply_relevance(
    model: Logistic,
    judged: JudgedQueries,
    encoded: EncodedTexts,
    describing: NDArray[np.int64],
    unanswered: fitting.Unanswered | None = None,
) -> fitting.AppliedRelevance:
    """Score every result with a model that was fitted earlier, on these documents or on others.

    Its weights do not change. The similarities of random pairs, with which it compares scores, are measured again in
    this corpus.

    Args:
        judged: The n answerable queries with their results.
        describing: Positions of the answerable queries that describe documents, those that would fit a model.
        unanswered: Questions that no document answers, to measure a model that was fitted with such questions.
    """
    with threadpool_limits(limits=1):
        background = _background(encoded.documents, encoded.answerable[describing], encoded.lengths)
        relevance = Relevance(model, background, judged.top.scores.shape[1])
        return fitting.AppliedRelevance(
            relevance,
            relevance.estimate(encoded.answerable, judged.top),
            None if model.on_topic is None else unanswered,
        )


def fit_on_topic(answerable: Float64, off_topic: Float64) -> OnTopic:
    """Fit the probability that a query is about the documents, by its best result.

    Args:
        answerable: (q, K, F) float64 features of queries about the documents.
        off_topic: (o, K, F) float64 features of off-topic questions.
    """
    columns = [FEATURES.index(name) for name in QUERY_FEATURES]
    best = np.concatenate([answerable[:, 0], off_topic[:, 0]])[:, columns]
    model = fitting.fit_logistic(best, np.arange(len(best)) < len(answerable), _ON_TOPIC_STRENGTH, "balanced")
    weights = model.weights / model.scale
    prior = np.log((1 - _OFF_TOPIC_SHARE) / _OFF_TOPIC_SHARE)  # the fit's own is that of equal shares
    return OnTopic(float(model.intercept - weights @ model.center + prior), *weights.tolist())


def _with_on_topic(fitted: fitting.RelevanceFit, on_topic: OnTopic, values: Float64) -> fitting.RelevanceFit:
    """Add the factor to a model, and to the probabilities of the results whose (q, K, F) features are `values`."""
    p = np.clip(fitted.out_of_fold.astype(np.float64), fitting.SUREST, 1 - fitting.SUREST)
    joint = on_topic.times(np.log(p) - np.log1p(-p), values)
    out_of_fold = (1 / (1 + np.exp(-joint))).astype(np.float32)
    return replace(fitted, model=replace(fitted.model, on_topic=on_topic), out_of_fold=out_of_fold)


def _background(documents: CorpusVectors, queries: QueryVectors, lengths: Lengths) -> Background | ComputedBackground:
    """Describe every document now if they are in memory, else only the results of a search."""
    if isinstance(documents, np.ndarray):
        return Background.of(documents, queries, np.asarray(lengths))
    stored = documents

    def read(positions: NDArray[np.int64]) -> ReadDocuments:
        return ReadDocuments(stored[positions], lengths[positions])

    return ComputedBackground.of(mean_and_covariance(documents), queries, read)


@dataclass(frozen=True)
class EstimatedScoreRelevance(fitting.EstimatedRelevance):
    """A model of scores that was fitted in this calibration, with its probabilities."""

    relevance: ScoreRelevance


def estimate_score_relevance(
    judged: JudgedQueries, components: Components, roles: QueryRoles
) -> EstimatedScoreRelevance | None:
    """Fit on the fitting queries, recalibrate on the other calibration queries, and score every result.

    None if the results of the fitting queries are all relevant or all irrelevant.

    Args:
        judged: The n answerable queries with their results.
        components: Further scores of the results by name, (n, K) float32 each, NaN for a missing one.
    """
    scores, k = judged.top.scores, judged.top.scores.shape[1]
    floors = fitting.lowest_scores(components, roles.fit)
    with threadpool_limits(limits=1):
        values = score_features(scores, components, floors, k)
        relevant, fit, unseen = judged.relevant, roles.fit, roles.not_fitting
        fitted = fitting.fit_relevance(values[fit], relevant[fit], roles.clusters)
        if fitted is None:
            return None
        model = fitting.map_probabilities(fitted.model, values[unseen], relevant[unseen])
        return EstimatedScoreRelevance(
            ScoreRelevance(model, floors, k),
            answerable=model.probability(values).astype(np.float32),
            unanswered=None,
            fit=fitted,
        )


Positions = NDArray[np.int64]
# Words of four letters or more carry the subject of a question; shorter ones are mostly function words.
_WORD = re.compile(r"\w{4,}")
# A question is about the corpus if its best result has at least half of its words, as relevant results do; on
# squad_v2_dev and scifact no question about another subject has as many and scores as high as the median answer.
_MIN_SHARED = 0.5
# Further results that a search fetches, so that some remain once the relevant ones are taken out.
_BEYOND = 20


@dataclass(frozen=True)
class LabelledSearch(SearchedQueries):
    """A data set after its labelled queries were searched by their vectors."""

    dataset: Dataset  # labelled queries and documents
    encoded: EncodedTexts  # vectors of the data set
    index: Index

    @property
    def score_name(self) -> str:
        """What the index compares documents by."""
        hybrid = words_of(self.index)
        shared = "" if hybrid is None else f" + {hybrid.weight:g} · shared words"
        return f"cosine similarity{shared}"

    def document(self, number: int) -> Document:
        """Return the passage at a position."""
        return self.dataset.documents[number]

    def deep(self, members: Positions) -> DeepFigures:
        """Search the answerable queries at `members` for 100 results."""
        queries = [self.dataset.answerable[position] for position in members.tolist()]
        return DeepFigures.measure(queries, self.encoded.answerable[members], self.index, self.dataset.parents)

    @cached_property
    def off_topic(self) -> fitting.UnansweredQuestions:
        """The questions about other subjects in the order of their table, each a cluster of its own."""
        vectors = self.encoded.off_topic
        clusters = int(self.cluster_ids.max(initial=-1)) + 1 + np.arange(len(vectors))
        return fitting.UnansweredQuestions(self.index.search(vectors, self._k), vectors, clusters)

    @cached_property
    def near_misses(self) -> list[tuple[fitting.UnansweredQuestions, Positions]]:
        """Two kinds made from answerable queries, each with the (m,) positions of these; the second may be missing."""
        top, rows = removed_documents(self.dataset, self.encoded, self.index, self._k)
        kinds = [(fitting.UnansweredQuestions(top, self.encoded.answerable[rows], self.cluster_ids[rows]), rows)]
        near = self.encoded.near_misses
        if near is not None and len(near.vectors):
            top = self.index.search(near.vectors, self._k)
            kinds.append((fitting.UnansweredQuestions(top, near.vectors, self.cluster_ids[near.sources]), near.sources))
        return kinds

    def off_topic_relevance(self, applied: fitting.AppliedRelevance | None) -> Float32 | None:
        """Estimate the relevance of the results of `off_topic`, (o, K) float32; None without a model of this search."""
        questions, model = self.off_topic, None if applied is None else applied.of_vectors
        return None if model is None else model.estimate(questions.vectors, questions.top)

    @property
    def own(self) -> fitting.UnansweredQuestions:
        """The user's unanswerable queries."""
        clusters = self.cluster_ids[len(self.judged) :]
        return fitting.UnansweredQuestions(self.unanswerable, self.encoded.unanswerable, clusters, own=True)

    @property
    def _k(self) -> int:
        return int(self.judged.top.scores.shape[1])

    def off_topic_remaining(self, right_answers: Float32) -> Mask:
        """Return which questions about other subjects the corpus does not seem to answer, (o,) bool.

        Args:
            right_answers: (n,) float32, best scores of queries that find a relevant document.
        """
        return ~seem_answered(self.dataset, self.off_topic.top, right_answers)


def seem_answered(dataset: Dataset, top: Ranking, right_answers: Float32) -> Mask:
    """Return a mask of the off-topic questions that the corpus seems to answer, (o,) bool.

    Such a question scores above the median right answer, and its best result has half of its words.

    Args:
        top: Results of the o questions, one or more each.
        right_answers: (n,) float32, best scores of queries that find a relevant document; without any, no question
            seems answered.
    """
    answered = np.zeros(len(top), dtype=np.bool_)
    if len(right_answers):
        for row in np.flatnonzero(top.scores[:, 0] > np.median(right_answers)).tolist():
            text = dataset.documents[int(top.positions[row, 0])].encoded_text
            words = {*_WORD.findall(dataset.off_topic[row].text.casefold())}
            common = words & {*_WORD.findall(text.casefold())}
            answered[row] = bool(words) and len(common) >= _MIN_SHARED * len(words)
    return answered


def removed_documents(dataset: Dataset, encoded: EncodedTexts, index: Index, k: int) -> tuple[Ranking, Positions]:
    """Search answerable queries, and take the documents that answer them out of the results.

    Returns:
        The (m, k) results, and positions, (m,), of the answerable queries of which k results remain.
    """
    top = index.search(encoded.answerable, min(k + _BEYOND, len(dataset.documents)))
    parents = dataset.documents.parents
    documents = top.positions if parents is None else parents[top.positions]
    removed = np.array(
        [
            [document in query.relevant or position in query.own_passages for position, document in found]
            for query, found in zip(dataset.answerable, np.dstack([top.positions, documents]).tolist(), strict=True)
        ]
    )
    rows = np.flatnonzero((~removed).sum(axis=1) >= k)
    order = np.argsort(removed[rows], axis=1, kind="stable")[:, :k]
    kept = Ranking(
        np.take_along_axis(top.scores[rows], order, axis=1), np.take_along_axis(top.positions[rows], order, axis=1)
    )
    return kept, rows


@dataclass(frozen=True)
class ResultScorer:
    """Scores results by a model that has not seen users' queries, so that their judgements can correct it."""

    # Model fitted on generated queries; None if these are too few, and the share of the largest possible score of
    # a result is used
    model: Relevance | None
    max_score: float = 1.0  # largest score of a result: 1 for the cosine, 1 + w with a lexical part

    @classmethod
    def fit(cls, dataset: Dataset, encoded: EncodedTexts, index: Searchable, k: int, seed: int) -> Self:
        """Fit the model on the generated queries.

        Args:
            k: K, the number of results per query.
            seed: Seed of the division into queries that fit the model and queries that recalibrate it.
        """
        hybrid = words_of(index)
        similarity = cls(None, 1.0 if hybrid is None else 1.0 + hybrid.weight)
        generated = [] if dataset.other_queries is None else dataset.other_queries.generated
        if encoded.generated is None or not generated:
            return similarity
        judged = judge_queries(generated, encoded.generated, index, k, dataset.documents.parents)
        roles = QueryRoles.assign(np.arange(len(judged)), SamplingUnits.from_clusters(clusters(generated)), seed)
        if roles is None:
            return similarity
        fitted = estimate_relevance(judged, encoded.generated, roles, encoded.documents, encoded.lengths)
        return cls(fitted.of_vectors) if fitted and fitted.of_vectors else similarity

    @property
    def name(self) -> Machine:
        """Name of the machine in the manifest."""
        return Machine.SIMILARITY if self.model is None else Machine.GENERATED

    def score(self, vectors: QueryVectors, top: Ranking) -> Float32:
        """Return the score of each result, (q, K) float32 in 0…1.

        Args:
            vectors: (q, d) float32 vectors of the queries.
            top: (q, K) results of the queries.
        """
        if self.model is not None:
            return self.model.estimate(vectors, top)
        shares: Float32 = np.clip(top.scores / np.float32(self.max_score), 0.0, 1.0)
        return shares
