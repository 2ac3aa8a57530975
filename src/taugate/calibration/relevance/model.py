"""The model of relevance: fit it on some of the queries, recalibrate it on others, and say how reliable it is.

Logistic regression gives the probability that a retrieved document is relevant; the strength of its penalty comes from
cross-validation. It learns from results that the qrels call relevant or not, and is measured on these. Where they name
a document that is searched in chunks, its best chunk is relevant, and nothing is known of the others: to call them
irrelevant would teach the model that passages of the right document are wrong, to call them relevant that every page
of it answers the query.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from taugate.calibration.encoding.corpus import EncodedTexts, Lengths
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.reliability import (
    LIKELY,
    ReliabilitySums,
    brier,
    brier_skill,
    error_interval,
    expected_calibration_error,
    reliability,
)
from taugate.calibration.metrics.splits import Fold, QueryRoles, cluster_folds
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.background import (
    Background,
    ComputedBackground,
    Float64,
    ReadDocuments,
    mean_and_covariance,
)
from taugate.retrieval.policy.relevance import FEATURES, Logistic, Recalibration, Relevance, features
from taugate.retrieval.release.evidence import RelevanceRecord
from taugate.retrieval.vectors.similarity import CorpusVectors, Float32

# C, the inverse strength of the ridge penalty on standardised features: from strong to next to none, a decade apart.
_STRENGTHS = (0.03, 0.3, 3.0)
# A feature that is the same for every result (the rank, with K = 1) carries nothing and must not be divided by nothing.
_MIN_SCALE = 1e-9
# Recalibration targets keep the map finite; the ridge penalty of scikit-learn is not wanted beside them.
_NO_PENALTY = 1e9


@dataclass(frozen=True)
class RelevanceFit:
    """A model of relevance with what cross-validation says of it.

    Attributes:
        model: Fitted on all queries.
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
    """A model of relevance with the probabilities that it gives to all results.

    Attributes:
        relevance: The model with what describes a query and its results.
        answerable: (n, K) and unanswerable: (u, K) float32, probabilities.
    """

    relevance: Relevance
    answerable: Float32
    unanswerable: Float32


@dataclass(frozen=True)
class EstimatedRelevance(AppliedRelevance):
    """A model that was fitted here, with the probabilities that it gives.

    Attributes:
        fit: The model before its probabilities were recalibrated, for a choice in which the queries that certify have
            no say.
        choosing: (c, K) float32, what it then gave to the queries that help to choose.
    """

    fit: RelevanceFit
    choosing: Float32


def estimate_relevance(
    judged: JudgedQueries,
    vectors: Float32,
    unanswerable: tuple[TopK, Float32],
    roles: QueryRoles,
    documents: CorpusVectors,
    lengths: Lengths,
) -> EstimatedRelevance | None:
    """Fit on the queries that fit, recalibrate on the other calibration queries, and score every result.

    One thread: the same data give the same bits.

    Args:
        judged: The n answerable queries with their results.
        vectors: (n, d) float32, of them.
        unanswerable: The top-K of the u unanswerable ones, and their (u, d) vectors.
        roles: Which queries fit.
        documents: (N, d) float32, in memory or not.
        lengths: (N,) bytes of each document. None where the queries that fit have no relevant result, or nothing else.
    """
    with threadpool_limits(limits=1):
        background = _background(documents, vectors[roles.fit], lengths)
        k = judged.top.scores.shape[1]
        found = background.rows(judged.top.positions)
        values = features(judged.top.scores, background.of_queries(vectors), found, k)
        relevant, labelled = judged.relevant, judged.labelled
        fitted = fit_relevance(values[roles.fit], relevant[roles.fit], roles.labels, labelled[roles.fit])
        if fitted is None:
            return None
        model = recalibrate(fitted.model, values[roles.rest], relevant[roles.rest], labelled[roles.rest])
        relevance = Relevance(model, background, k)
        return EstimatedRelevance(
            relevance,
            answerable=model.probability(values).astype(np.float32),
            unanswerable=relevance.estimate(unanswerable[1], unanswerable[0]),
            fit=fitted,
            choosing=fitted.model.probability(values[roles.choose]).astype(np.float32),
        )


def apply_relevance(
    model: Logistic, judged: JudgedQueries, unanswerable: TopK, encoded: EncodedTexts, describing: NDArray[np.int64]
) -> AppliedRelevance:
    """Score every result with a model that was fitted before, on these documents or on others.

    Its weights stay. What it compares scores with, the similarities of random partners, is measured again in this
    corpus.

    Args:
        model: With its recalibration.
        judged: The n answerable queries with their results.
        unanswerable: The top-K of the others.
        encoded: Vectors of documents and queries.
        describing: Positions of the answerable queries by which documents are described, those that would fit a model.
    """
    with threadpool_limits(limits=1):
        background = _background(encoded.documents, encoded.answerable[describing], encoded.lengths)
        relevance = Relevance(model, background, judged.top.scores.shape[1])
        return AppliedRelevance(
            relevance,
            relevance.estimate(encoded.answerable, judged.top),
            relevance.estimate(encoded.unanswerable, unanswerable),
        )


def _background(documents: CorpusVectors, queries: Float32, lengths: Lengths) -> Background | ComputedBackground:
    """Describe every document now where they are in memory, and the results of a search when it finds them if not."""
    if isinstance(documents, np.ndarray):
        return Background.of(documents, queries, np.asarray(lengths))
    stored = documents

    def read(positions: NDArray[np.int64]) -> ReadDocuments:
        return ReadDocuments(stored[positions], lengths[positions])

    return ComputedBackground.of(mean_and_covariance(documents), queries, read)


def fit_relevance(
    values: Float64,
    relevant: NDArray[np.bool_],
    labels: NDArray[np.int64],
    labelled: NDArray[np.bool_] | None = None,
) -> RelevanceFit | None:
    """Fit the probability of relevance on q queries, with the strength of the penalty by cross-validation.

    Folds are of whole queries, as results of one query resemble each other, and of whole documents, as do queries on
    one. One thread, so that the same data give the same bits.

    Args:
        values: (q, K, F) float64 features.
        relevant: (q, K).
        labels: (q,), equal for queries on one document.
        labelled: (q, K), the results to learn from, None for all. None where a fold would have only relevant or only
            irrelevant results to learn from.
    """
    known = _all_of(relevant) if labelled is None else labelled
    folds = list(cluster_folds(np.unique(labels, return_inverse=True)[1]))  # roles are drawn at random
    if any(not 0 < relevant[rest][known[rest]].sum() < known[rest].sum() for rest, _ in folds):
        return None
    with threadpool_limits(limits=1):
        trials = [_cross_validated(values, relevant, known, folds, strength) for strength in _STRENGTHS]
        losses = [float(log_loss(relevant[known], trial[known], labels=[False, True])) for trial in trials]
        best = int(np.argmin(losses))
        model = fit_logistic(values[known], relevant[known], _STRENGTHS[best])
    return RelevanceFit(model, _STRENGTHS[best], losses[best], trials[best].astype(np.float32))


def _cross_validated(
    values: Float64,
    relevant: NDArray[np.bool_],
    known: NDArray[np.bool_],
    folds: list[Fold],
    strength: float,
) -> Float64:
    """Return the probability of every result by a model of the other folds' known ones, (q, K)."""
    probabilities = np.empty(relevant.shape)
    for rest, fold in folds:
        model = fit_logistic(values[rest][known[rest]], relevant[rest][known[rest]], strength)
        probabilities[fold] = model.probability(values[fold])
    return probabilities


def _all_of(results: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.ones(results.shape, dtype=np.bool_)


def fit_logistic(
    values: Float64, positive: NDArray[np.bool_], strength: float, class_weight: Literal["balanced"] | None = None
) -> Logistic:
    """Fit a logistic regression on standardised features.

    Args:
        values: (n, F) float64.
        positive: (n,).
        strength: C, the inverse strength of the ridge penalty.
        class_weight: "balanced" where both classes are to weigh the same, as scikit-learn has it.
    """
    center, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale < _MIN_SCALE, 1.0, scale)
    regression = LogisticRegression(C=strength, class_weight=class_weight, max_iter=1000)
    regression.fit((values - center) / scale, positive)
    return Logistic(center, scale, regression.coef_[0].astype(np.float64), float(regression.intercept_[0]))


def recalibrate(
    model: Logistic, values: Float64, relevant: NDArray[np.bool_], labelled: NDArray[np.bool_] | None = None
) -> Logistic:
    """Add a map of what the model says, fitted on queries other than its own.

    A model is too sure of what it was fitted on, and documents are described by how they score against its queries;
    both end here. Beta calibration (Kull, Silva Filho and Flach, AISTATS 2017): a logistic regression on ln p and −ln(1
    − p), to the targets (N₊ + 1) / (N₊ + 2) and 1 / (N₋ + 2) in place of 1 and 0 (Platt, "Probabilistic Outputs for
    Support Vector Machines", 1999, §2.2). On unseen documents it is as good as Platt's line or better, and isotonic
    regression and Venn–Abers are worse where labels are few (docs/benchmarks/calibration.md, "Recalibrations tried").
    It rises strictly but for the rounding to float32, so that the cuts by probability are those of before: queries that
    certify one may help to fit the map. Isotonic regression has steps, which would move cuts.

    Where a or b would not be above 0 it is Platt's line, a = b. The model stays as it was where the queries have only
    relevant or only irrelevant results, or where the line would fall, which says that the model orders unseen results
    no better than chance.

    Args:
        model: Fitted on other queries.
        values: (q, K, F) float64 features.
        relevant: (q, K).
        labelled: (q, K), the results to learn from, None for all.
    """
    known = _all_of(relevant) if labelled is None else labelled
    found = relevant[known]
    positive = int(found.sum())
    negative = len(found) - positive
    if not positive or not negative:
        return model
    odds = model.log_odds(values)[known]
    against = np.logaddexp(0.0, odds)
    target = np.where(found, (positive + 1) / (positive + 2), 1 / (negative + 2))
    (a, b), c = _regression(np.column_stack([odds - against, against]), target)
    if min(a, b) <= 0:
        (a,), c = _regression(odds[:, None], target)
        b = a
    return replace(model, recalibration=Recalibration(a, b, c)) if a > 0 else model


def _regression(said: Float64, target: Float64) -> tuple[list[float], float]:
    """Fit a logistic regression to targets between 0 and 1, and return its coefficients and intercept.

    Args:
        said: (n, F).
        target: (n,).
    """
    regression = LogisticRegression(C=_NO_PENALTY, max_iter=1000)
    with threadpool_limits(limits=1):
        regression.fit(
            np.tile(said, (2, 1)),
            np.repeat([True, False], len(said)),
            sample_weight=np.concatenate([target, 1 - target]),
        )
    return regression.coef_[0].tolist(), float(regression.intercept_[0])


def relevance_record(
    estimated: EstimatedRelevance,
    roles: QueryRoles,
    judged: JudgedQueries,
    units: SamplingUnits,
    heldout: NDArray[np.int64] | None,
    seed: int,
) -> RelevanceRecord:
    """Write down how the model was fitted, and its reliability on queries that it was not fitted on.

    Bootstraps come from `numpy.random.default_rng([seed, 7])`.

    Args:
        estimated: The model with its probabilities.
        roles: Which queries fitted it.
        judged: The n answerable queries with their results.
        units: What counts as one draw among them.
        heldout: Positions of the held-out ones; without them it is measured on those that help to choose and certify,
            which the recalibration, three numbers, was fitted on.
        seed: Of the calibration.
    """
    return RelevanceRecord(
        features=list(FEATURES),
        fit_queries=len(roles.fit),
        regularization=estimated.fit.regularization,
        log_loss=estimated.fit.log_loss,
        recalibration=estimated.relevance.model.recalibration.kind,
        part="calibration" if heldout is None else "heldout",
        **_reliability(estimated, judged, units, roles.rest if heldout is None else heldout, seed),
    )


def kept_relevance_record(
    record: RelevanceRecord,
    applied: AppliedRelevance,
    judged: JudgedQueries,
    units: SamplingUnits,
    part: tuple[Literal["calibration", "heldout"], NDArray[np.int64]],
    seed: int,
) -> RelevanceRecord:
    """Write down how reliable a model is on other queries or documents than before; how it was fitted stays.

    Args:
        record: Of the release that the model comes from.
        applied: The model with its probabilities.
        judged: As for `relevance_record`.
        units: As for `relevance_record`.
        part: The queries to measure it on, by name and positions.
        seed: As for `relevance_record`.
    """
    name, members = part
    return record.model_copy(update={"part": name, **_reliability(applied, judged, units, members, seed)})


def _reliability(
    applied: AppliedRelevance,
    judged: JudgedQueries,
    units: SamplingUnits,
    unseen: NDArray[np.int64],
    seed: int,
) -> dict[str, Any]:
    """Measure a model on queries that it was not fitted on; returns fields of RelevanceRecord."""
    relevance, labelled = applied.answerable[unseen], judged.labelled[unseen]
    sums = ReliabilitySums.by_cluster(relevance, judged.relevant[unseen], units.labels[unseen], labelled)
    drawn = sums.drawn(np.random.default_rng([seed, 7]))
    return {
        "queries": len(unseen),
        "documents": len(sums.squares),
        "expected_calibration_error": expected_calibration_error(sums),
        "brier": brier(sums, drawn),
        "brier_skill": brier_skill(sums, drawn),
        "error": error_interval(sums, drawn),
        "error_of_likely": error_interval(sums, drawn, LIKELY) if (relevance[labelled] >= LIKELY).any() else None,
        "bins": reliability(sums),
    }
