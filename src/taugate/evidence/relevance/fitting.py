"""Fits logistic models of relevance by scikit-learn, also to the results of questions that no document answers.

Questions that no document answers: relevance is low for their results, too, however similar these are. A model that
learns from answerable queries alone takes for granted that there is an answer. Half of the queries are assumed to have
none. The share decides how far relevance falls for a query that could be either: with a share s below a half in the
traffic, the true odds of relevance are between those returned and (1 − s) / s times as high.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from taugate.evidence.clusters import ClusterIds
from taugate.evidence.divisions import Fold, cluster_folds
from taugate.policy.arrays import Float32, Float64, QueryVectors, Ranking
from taugate.policy.policy import Mask
from taugate.policy.relevance import BetaCalibration, Logistic, Relevance
from taugate.policy.score_relevance import Components, ScoreRelevance

# Share that the user's own have among the unanswerable ones, as they are what users ask. On three other sets than those
# that chose it, the error of results with a relevance of .2 or more is .038 to .050, and .038 to .119 if all kinds
# weigh the same (benchmarks/decisions.md, "Relevance of questions without an answer"). It is no lower with 1.
_OWN_SHARE = 0.8
_MIN_OWN = 30  # fewer say too little to outweigh the other kinds

# Half, as nothing is known of the traffic, and half of SQuAD 2.0's questions are unanswerable (Rajpurkar et al. 2018).
UNANSWERABLE_SHARE = 0.5

# C, the inverse strength of the ridge penalty on standardised features, from strong to almost none in decades.
_STRENGTHS = (0.03, 0.3, 3.0)
# A feature that is equal for all results (the rank, with K = 1) has no scale to divide by.
_MIN_SCALE = 1e-9
# Probabilities of cross-validation keep this distance from 0 and 1: they are stored in float32.
SUREST = 1e-6
# The targets of the recalibration keep the map finite, so scikit-learn's ridge penalty is switched off.
_NO_PENALTY = 1e9


@dataclass(frozen=True)
class UnansweredQuestions:
    """Questions of one kind that no document answers, with their results."""

    top: Ranking  # their (m, K) results, best first
    vectors: QueryVectors  # (m, d) float32
    # (m,) cluster of each question, numbered with those of the labelled queries; questions made from one query, or
    # about one document, share it.
    clusters: ClusterIds
    own: bool = False  # whether the user labelled them

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, part: Mask) -> Self:
        """Take the questions in a (m,) mask."""
        top = Ranking(self.top.scores[part], self.top.positions[part])
        return replace(self, top=top, vectors=self.vectors[part], clusters=self.clusters[part])


@dataclass(frozen=True)
class Unanswered:
    """Questions that no document answers, by kind, without empty kinds; no question is in both parts."""

    # Questions that the model learns from. The first kind are those about other subjects, which also fit the chance
    # that a query is about the documents.
    learning: Sequence[UnansweredQuestions]
    measuring: Sequence[UnansweredQuestions]  # questions that measure the model


def kind_shares(kinds: Sequence[UnansweredQuestions]) -> list[float]:
    """Return the share of each kind among the unanswerable questions: four fifths for 30 or more of the user's own."""
    counts = [kind.own and len(kind) >= _MIN_OWN for kind in kinds]
    own = _OWN_SHARE if any(counts) and not all(counts) else 0.0
    others = counts.count(False)
    return [own if counted and own else (1 - own) / (others or 1) for counted in counts]


def mixture_weights(answerable: int, kinds: Sequence[int], shares: Sequence[float]) -> NDArray[np.float64]:
    """Return weights of queries, which make UNANSWERABLE_SHARE of them unanswerable.

    Returns (n + Σ kinds,) weights: of the answerable queries, then of the questions. `answerable` is n, the number of
    answerable queries, which weigh 1 each; `kinds` the number of questions of each kind, 1 or more; `shares` the share
    of each kind among them.
    """
    total = answerable * UNANSWERABLE_SHARE / (1 - UNANSWERABLE_SHARE)
    weights = [np.full(questions, total * share / questions) for questions, share in zip(kinds, shares, strict=True)]
    return np.concatenate([np.ones(answerable), *weights])


@dataclass(frozen=True)
class RelevanceFit:
    """A model of relevance with the results of cross-validation."""

    model: Logistic  # model fitted on all queries
    regularization: float  # C, the inverse strength of its ridge penalty
    log_loss: float  # mean negative log-likelihood of `out_of_fold`, in nats
    # (q, K) float32, probability of each result by a model that has not seen its query.
    out_of_fold: NDArray[np.float32]


def fit_relevance(
    values: Float64,
    relevant: NDArray[np.bool_],
    cluster_ids: NDArray[np.int64],
    labelled: NDArray[np.bool_] | None = None,
) -> RelevanceFit | None:
    """Fit the probability of relevance on q queries, with the strength of the penalty by cross-validation.

    None if a fold would have only relevant or only irrelevant results to learn from. Folds consist of whole queries and
    whole documents, because results of one query, and queries on one document, resemble each other. One thread makes
    the same data give the same bits. `values` is (q, K, F) float64 features; `relevant` is (q, K); `cluster_ids` is
    (q,), equal for queries on one document; `labelled` is (q, K), the results to learn from, None for all.
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
    values: Float64, relevant: NDArray[np.bool_], used: NDArray[np.bool_], folds: list[Fold], strength: float
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

    `values` are (n, F) float64, `positive` is (n,), `strength` is C, the inverse strength of the ridge penalty;
    `class_weight` as in scikit-learn.
    """
    center, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale < _MIN_SCALE, 1.0, scale)
    regression = LogisticRegression(C=strength, class_weight=class_weight, max_iter=1000)
    regression.fit((values - center) / scale, positive)
    return Logistic(center, scale, regression.coef_[0].astype(np.float64), float(regression.intercept_[0]))


def map_probabilities(
    model: Logistic,
    values: Float64,
    relevant: NDArray[np.bool_],
    labelled: NDArray[np.bool_] | None = None,
    unanswered: Sequence[Float64] = (),
    shares: Sequence[float] = (),
) -> Logistic:
    """Add a map of the model's probabilities, fitted on queries that the model has not seen.

    The map corrects that a model is too sure on its own queries, and that documents are described by their scores
    against these queries. It is beta calibration (Kull, Silva Filho and Flach, AISTATS 2017): a logistic regression on
    ln p and −ln(1 − p), to the targets (N₊ + 1) / (N₊ + 2) and 1 / (N₋ + 2) instead of 1 and 0 (Platt, "Probabilistic
    Outputs for Support Vector Machines", 1999, §2.2). On unseen documents it is as good as Platt's line or better, and
    isotonic regression and Venn–Abers are worse if labels are few (benchmarks/decisions.md, "Relevance and policies").
    It rises strictly except for the rounding to float32, so it does not change the cuts by probability, and queries
    that certify a cut may help to fit the map. Isotonic regression has steps, which would move cuts.

    If a or b would not be above 0, the map is Platt's line, a = b. The model is returned unchanged if the queries have
    only relevant or only irrelevant results, or if the line would fall, which means that the model orders unseen
    results no better than chance. `values` are (q, K, F) float64, `relevant` and `labelled`, the results to learn from,
    (q, K). `unanswered` are features of questions that no document answers, (m, K, F) float64 for each kind: the map is
    fitted for a mixture of them and the queries (`mixture_weights`, with `shares`).
    """
    used = _all_of(relevant) if labelled is None else labelled
    outcomes, odds = relevant[used], model.log_odds(values)[used]
    if outcomes.all() or not outcomes.any():
        return model
    by_query = mixture_weights(len(values), [len(kind) for kind in unanswered], shares)
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
    """Fit a logistic regression of targets in 0…1 on values, and return its coefficients and intercept."""
    # `values` is (n, F); `target` is (n,); `weights` is (n,), of the rows.
    regression = LogisticRegression(C=_NO_PENALTY, max_iter=1000)
    with threadpool_limits(limits=1):
        regression.fit(
            np.tile(values, (2, 1)),
            np.repeat([True, False], len(values)),
            sample_weight=np.concatenate([target * weights, (1 - target) * weights]),
        )
    return regression.coef_[0].tolist(), float(regression.intercept_[0])


@dataclass(frozen=True)
class AppliedRelevance:
    """A model of relevance with its probabilities for all results."""

    # The model with the background that describes queries and results, or a model of scores alone.
    relevance: Relevance | ScoreRelevance
    answerable: Float32  # (n, K) probabilities of the answerable queries' results
    # Questions that took part in the fit or measure it; None if the model takes for granted that every query has an
    # answer.
    unanswered: Unanswered | None

    @property
    def of_vectors(self) -> Relevance | None:
        """The model, if it reads vectors."""
        return self.relevance if isinstance(self.relevance, Relevance) else None

    @property
    def of_scores(self) -> ScoreRelevance | None:
        """The model, if it reads scores alone."""
        return self.relevance if isinstance(self.relevance, ScoreRelevance) else None


@dataclass(frozen=True)
class EstimatedRelevance(AppliedRelevance):
    """A model fitted in this calibration, with its probabilities."""

    fit: RelevanceFit  # the model before recalibration


def lowest_scores(components: Components, rows: NDArray[np.int64]) -> dict[str, float]:
    """Return the lowest score of each component, by name, that is not missing in some rows; 0 if all are."""
    given = {name: values[rows][~np.isnan(values[rows])] for name, values in components.items()}
    return {name: float(values.min()) if values.size else 0.0 for name, values in given.items()}
