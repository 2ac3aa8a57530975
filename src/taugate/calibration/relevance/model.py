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

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.calibration.encoding.corpus import EncodedTexts, Lengths
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.ranking import JudgedQueries
from taugate.evidence.relevance.fitting import (
    SUREST,
    AppliedRelevance,
    EstimatedRelevance,
    RelevanceFit,
    Unanswered,
    UnansweredQuestions,
    fit_logistic,
    fit_relevance,
    kind_shares,
    lowest_scores,
    map_probabilities,
)
from taugate.policy.arrays import CorpusVectors, Float64, QueryVectors, mean_and_covariance
from taugate.policy.background import Background, ComputedBackground, ReadDocuments
from taugate.policy.relevance import FEATURES, QUERY_FEATURES, Logistic, OnTopic, Relevance, features
from taugate.policy.score_relevance import Components, ScoreRelevance, score_features

# C of the factor P(on topic), and the share of off-topic questions that it assumes. With a half, as in the mixture, it
# also lowers unusual queries that have an answer, and cuts by probability keep up to .03 more results. Of .5, .1, .03
# and .01 and of .03, 1 and 30, on cosqa and covidqa_chunks, this share and C have the lowest Brier score on off-topic
# questions among those that keep no more results at a loss of 2 and 5 %.
_ON_TOPIC_STRENGTH, _OFF_TOPIC_SHARE = 1.0, 0.1


@dataclass(frozen=True)
class EstimatedCorpusRelevance(EstimatedRelevance):
    """A model of vectors that was fitted in this calibration, with its probabilities."""

    relevance: Relevance


def estimate_relevance(
    judged: JudgedQueries,
    vectors: QueryVectors,
    roles: QueryRoles,
    documents: CorpusVectors,
    lengths: Lengths,
    unanswered: Unanswered | None = None,
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
        fitted = fit_relevance(values[roles.fit], relevant[roles.fit], roles.clusters, labelled[roles.fit])
        if fitted is None:
            return None
        unseen = roles.not_fitting
        questions: list[Float64] = []
        shares: list[float] = []
        if unanswered is not None:
            questions = [_features_of(kind, background, k) for kind in unanswered.learning]
            shares = kind_shares(unanswered.learning)
            fitted = _with_on_topic(fitted, fit_on_topic(values[roles.fit], questions[0]), values[roles.fit])
        model = map_probabilities(fitted.model, values[unseen], relevant[unseen], labelled[unseen], questions, shares)
        relevance = Relevance(model, background, k)
        return EstimatedCorpusRelevance(
            relevance, answerable=model.probability(values).astype(np.float32), unanswered=unanswered, fit=fitted
        )


def apply_relevance(
    model: Logistic,
    judged: JudgedQueries,
    encoded: EncodedTexts,
    describing: NDArray[np.int64],
    unanswered: Unanswered | None = None,
) -> AppliedRelevance:
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
        return AppliedRelevance(
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
    model = fit_logistic(best, np.arange(len(best)) < len(answerable), _ON_TOPIC_STRENGTH, "balanced")
    weights = model.weights / model.scale
    prior = np.log((1 - _OFF_TOPIC_SHARE) / _OFF_TOPIC_SHARE)  # the fit's own is that of equal shares
    return OnTopic(float(model.intercept - weights @ model.center + prior), *weights.tolist())


def _with_on_topic(fitted: RelevanceFit, on_topic: OnTopic, values: Float64) -> RelevanceFit:
    """Add the factor to a model, and to the probabilities of the results whose (q, K, F) features are `values`."""
    p = np.clip(fitted.out_of_fold.astype(np.float64), SUREST, 1 - SUREST)
    joint = on_topic.times(np.log(p) - np.log1p(-p), values)
    out_of_fold = (1 / (1 + np.exp(-joint))).astype(np.float32)
    return replace(fitted, model=replace(fitted.model, on_topic=on_topic), out_of_fold=out_of_fold)


def _features_of(questions: UnansweredQuestions, background: Background | ComputedBackground, k: int) -> Float64:
    rows, of_queries = background.rows(questions.top.positions), background.of_queries(questions.vectors)
    return features(questions.top.scores, of_queries, rows, k)


def _background(documents: CorpusVectors, queries: QueryVectors, lengths: Lengths) -> Background | ComputedBackground:
    """Describe every document now if they are in memory, else only the results of a search."""
    if isinstance(documents, np.ndarray):
        return Background.of(documents, queries, np.asarray(lengths))
    stored = documents

    def read(positions: NDArray[np.int64]) -> ReadDocuments:
        return ReadDocuments(stored[positions], lengths[positions])

    return ComputedBackground.of(mean_and_covariance(documents), queries, read)


@dataclass(frozen=True)
class EstimatedScoreRelevance(EstimatedRelevance):
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
    floors = lowest_scores(components, roles.fit)
    with threadpool_limits(limits=1):
        values = score_features(scores, components, floors, k)
        relevant, fit, unseen = judged.relevant, roles.fit, roles.not_fitting
        fitted = fit_relevance(values[fit], relevant[fit], roles.clusters)
        if fitted is None:
            return None
        model = map_probabilities(fitted.model, values[unseen], relevant[unseen])
        return EstimatedScoreRelevance(
            ScoreRelevance(model, floors, k),
            answerable=model.probability(values).astype(np.float32),
            unanswered=None,
            fit=fitted,
        )
