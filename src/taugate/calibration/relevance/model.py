"""The model of relevance: fits it on some queries and recalibrates it on others.

Logistic regression gives the probability that a retrieved document is relevant; the strength of its penalty comes from
cross-validation. The model learns from results that the qrels judge. If the qrels name a
document that is searched in chunks, its best chunk is relevant and its other chunks are unknown: calling them
irrelevant would teach the model that passages of the right document are wrong, and calling them relevant that every
page of it answers the query.

With questions that no document answers, relevance is P(on topic) · P(relevant | on topic), recalibrated for a mixture
of answerable and unanswerable queries. Off-topic questions fit the first factor. Questions close to the documents only
take part in the recalibration: a factor that tells them from answerable queries has no lower calibration error, and
moves results of answerable queries below those of others, so that cuts keep more (docs/research/calibration.md,
"Questions without an answer").
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from taugate.calibration.encoding.corpus import EncodedTexts, Lengths
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.splits import Fold, QueryRoles, cluster_folds
from taugate.calibration.relevance.unanswered import Unanswered, UnansweredQuestions, mixture_weights
from taugate.retrieval.policy.background import (
    Background,
    ComputedBackground,
    Float64,
    ReadDocuments,
    mean_and_covariance,
)
from taugate.retrieval.policy.relevance import (
    FEATURES,
    QUERY_FEATURES,
    BetaCalibration,
    Logistic,
    OnTopic,
    Relevance,
    features,
)
from taugate.retrieval.policy.score_relevance import ScoreRelevance
from taugate.retrieval.vectors.queries import QueryVectors
from taugate.retrieval.vectors.similarity import CorpusVectors, Float32

# C, the inverse strength of the ridge penalty on standardised features, from strong to almost none in decades.
_STRENGTHS = (0.03, 0.3, 3.0)
# C of the factor P(on topic), and the share of off-topic questions that it assumes. With a half, as in the mixture, it
# also lowers unusual queries that have an answer, and cuts by probability keep up to .03 more results. Of .5, .1, .03
# and .01 and of .03, 1 and 30, on cosqa and covidqa_chunks, this share and C have the lowest Brier score on off-topic
# questions among those that keep no more results at a loss of 2 and 5 %.
_ON_TOPIC_STRENGTH, _OFF_TOPIC_SHARE = 1.0, 0.1
# A feature that is equal for all results (the rank, with K = 1) has no scale to divide by.
_MIN_SCALE = 1e-9
# Probabilities of cross-validation keep this distance from 0 and 1: they are stored in float32.
_SUREST = 1e-6
# The targets of the recalibration keep the map finite, so scikit-learn's ridge penalty is switched off.
_NO_PENALTY = 1e9


@dataclass(frozen=True)
class RelevanceFit:
    """A model of relevance with the results of cross-validation.

    Attributes:
        model: Model fitted on all queries.
        regularization: C, the inverse strength of its ridge penalty.
        log_loss: Mean negative log-likelihood of `out_of_fold`, in nats.
        out_of_fold: (q, K) float32, probability of each result by a model that has not seen its query.
    """

    model: Logistic
    regularization: float
    log_loss: float
    out_of_fold: NDArray[np.float32]


@dataclass(frozen=True)
class AppliedRelevance:
    """A model of relevance with its probabilities for all results.

    Attributes:
        relevance: The model with the background that describes queries and results, or a model of scores alone.
        answerable: (n, K) float32 probabilities of the answerable queries' results.
        unanswered: Questions that took part in the fit or measure it; None if the model takes for granted that every
            query has an answer.
    """

    relevance: Relevance | ScoreRelevance
    answerable: Float32
    unanswered: Unanswered | None


@dataclass(frozen=True)
class EstimatedRelevance(AppliedRelevance):
    """A model fitted in this calibration, with its probabilities.

    Attributes:
        fit: The model before recalibration.
    """

    fit: RelevanceFit


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
        roles: Roles of the queries.
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
        if unanswered is not None:
            questions = [_features_of(kind, background, k) for kind in unanswered.learning]
            fitted = _with_on_topic(fitted, fit_on_topic(values[roles.fit], questions[0]), values[roles.fit])
        model = recalibrate(fitted.model, values[unseen], relevant[unseen], labelled[unseen], questions)
        relevance = Relevance(model, background, k)
        return EstimatedCorpusRelevance(
            relevance,
            answerable=model.probability(values).astype(np.float32),
            unanswered=unanswered,
            fit=fitted,
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
        model: Model with its recalibration.
        judged: The n answerable queries with their results.
        encoded: Vectors of documents and queries.
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
    p = np.clip(fitted.out_of_fold.astype(np.float64), _SUREST, 1 - _SUREST)
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


def fit_relevance(
    values: Float64,
    relevant: NDArray[np.bool_],
    cluster_ids: NDArray[np.int64],
    labelled: NDArray[np.bool_] | None = None,
) -> RelevanceFit | None:
    """Fit the probability of relevance on q queries, with the strength of the penalty by cross-validation.

    None if a fold would have only relevant or only irrelevant results to learn from. Folds consist of whole queries and
    whole documents, because results of one query, and queries on one document, resemble each other. One thread makes
    the same data give the same bits.

    Args:
        values: (q, K, F) float64 features.
        relevant: (q, K).
        cluster_ids: (q,), equal for queries on one document.
        labelled: (q, K), the results to learn from, None for all.
    """
    used = _all_of(relevant) if labelled is None else labelled
    folds = list(cluster_folds(np.unique(cluster_ids, return_inverse=True)[1]))  # roles are drawn at random
    if any(not 0 < relevant[fit][used[fit]].sum() < used[fit].sum() for fit, _ in folds):
        return None
    with threadpool_limits(limits=1):
        trials = [_cross_validated(values, relevant, used, folds, strength) for strength in _STRENGTHS]
        losses = [float(log_loss(relevant[used], trial[used], labels=[False, True])) for trial in trials]
        best = int(np.argmin(losses))
        model = fit_logistic(values[used], relevant[used], _STRENGTHS[best])
    return RelevanceFit(model, _STRENGTHS[best], losses[best], trials[best].astype(np.float32))


def _cross_validated(
    values: Float64,
    relevant: NDArray[np.bool_],
    used: NDArray[np.bool_],
    folds: list[Fold],
    strength: float,
) -> Float64:
    """Return the probability of every result by a model of the labelled results in the other folds, (q, K)."""
    probabilities = np.empty(relevant.shape)
    for fit, fold in folds:
        model = fit_logistic(values[fit][used[fit]], relevant[fit][used[fit]], strength)
        probabilities[fold] = model.probability(values[fold])
    return probabilities


def _all_of(results: NDArray[Any]) -> NDArray[np.bool_]:
    return np.ones(results.shape, dtype=np.bool_)


def fit_logistic(
    values: Float64, positive: NDArray[np.bool_], strength: float, class_weight: Literal["balanced"] | None = None
) -> Logistic:
    """Fit a logistic regression on standardised features.

    Args:
        values: (n, F) float64.
        positive: (n,).
        strength: C, the inverse strength of the ridge penalty.
        class_weight: "balanced" gives both classes the same weight, as in scikit-learn.
    """
    center, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale < _MIN_SCALE, 1.0, scale)
    regression = LogisticRegression(C=strength, class_weight=class_weight, max_iter=1000)
    regression.fit((values - center) / scale, positive)
    return Logistic(center, scale, regression.coef_[0].astype(np.float64), float(regression.intercept_[0]))


def recalibrate(
    model: Logistic,
    values: Float64,
    relevant: NDArray[np.bool_],
    labelled: NDArray[np.bool_] | None = None,
    unanswered: Sequence[Float64] = (),
) -> Logistic:
    """Add a map of the model's probabilities, fitted on queries that the model has not seen.

    The map corrects that a model is too sure on its own queries, and that documents are described by their scores
    against these queries. It is beta calibration (Kull, Silva Filho and Flach, AISTATS 2017): a logistic regression on
    ln p and −ln(1 − p), to the targets (N₊ + 1) / (N₊ + 2) and 1 / (N₋ + 2) instead of 1 and 0 (Platt, "Probabilistic
    Outputs for Support Vector Machines", 1999, §2.2). On unseen documents it is as good as Platt's line or better, and
    isotonic regression and Venn–Abers are worse if labels are few (docs/benchmarks/calibration.md, "Recalibrations
    tried"). It rises strictly except for the rounding to float32, so it does not change the cuts by probability, and
    queries that certify a cut may help to fit the map. Isotonic regression has steps, which would move cuts.

    If a or b would not be above 0, the map is Platt's line, a = b. The model is returned unchanged if the queries have
    only relevant or only irrelevant results, or if the line would fall, which means that the model orders unseen
    results no better than chance.

    Args:
        model: Model fitted on other queries.
        values: (q, K, F) float64 features.
        relevant: (q, K).
        labelled: (q, K), the results to learn from, None for all.
        unanswered: Features of questions that no document answers, (m, K, F) float64 for each kind. The map is fitted
            for a mixture of them and the queries (`mixture_weights`).
    """
    used = _all_of(relevant) if labelled is None else labelled
    outcomes, odds = relevant[used], model.log_odds(values)[used]
    if outcomes.all() or not outcomes.any():
        return model
    by_query = mixture_weights(len(values), [len(kind) for kind in unanswered])
    weights = np.repeat(by_query, [*used.sum(axis=1), *(kind.shape[1] for kind in unanswered for _ in kind)])
    if unanswered:
        odds = np.concatenate([odds, *(model.log_odds(kind).ravel() for kind in unanswered)])
        outcomes = np.concatenate([outcomes, np.zeros(len(odds) - len(outcomes), dtype=np.bool_)])
    positive = int(outcomes.sum())
    negative = len(outcomes) - positive
    against = np.logaddexp(0.0, odds)
    target = np.where(outcomes, (positive + 1) / (positive + 2), 1 / (negative + 2))
    (a, b), c = _regression(np.column_stack([odds - against, against]), target, weights)
    if min(a, b) <= 0:
        (a,), c = _regression(odds[:, None], target, weights)
        b = a
    return replace(model, recalibration=BetaCalibration(a, b, c)) if a > 0 else model


def _regression(values: Float64, target: Float64, weights: Float64) -> tuple[list[float], float]:
    """Fit a logistic regression of targets in 0…1 on values, and return its coefficients and intercept.

    Args:
        values: (n, F).
        target: (n,).
        weights: (n,), of the rows.
    """
    regression = LogisticRegression(C=_NO_PENALTY, max_iter=1000)
    with threadpool_limits(limits=1):
        regression.fit(
            np.tile(values, (2, 1)),
            np.repeat([True, False], len(values)),
            sample_weight=np.concatenate([target * weights, (1 - target) * weights]),
        )
    return regression.coef_[0].tolist(), float(regression.intercept_[0])
