"""Fit the probability that a retrieved document is relevant: logistic regression, its strength by cross-validation."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from taugate.retrieval.policy.background import Float64
from taugate.retrieval.policy.model import Logistic

# C, the inverse strength of the ridge penalty on standardised features: from strong to next to none, a decade apart.
_STRENGTHS = (0.03, 0.3, 3.0)
_FOLDS = 5
# A feature that is the same for every result (the rank, with K = 1) carries nothing and must not be divided by nothing.
_SMALLEST_SCALE = 1e-9


@dataclass(frozen=True)
class Fit:
    """The model with what cross-validation says of it.

    out_of_fold: (q, K) float32, probability of each result by a model that has not seen its query; log_loss: mean
    negative log-likelihood of those, in nats.
    """

    model: Logistic
    regularization: float
    log_loss: float
    out_of_fold: NDArray[np.float32]


def fit(values: Float64, relevant: NDArray[np.bool_], labels: NDArray[np.int64]) -> Fit | None:
    """Fit on q queries; values: (q, K, F) features, relevant: (q, K), labels: (q,), equal for queries on one document.

    Folds are of whole queries, as results of one query resemble each other, and of whole documents, as do queries on
    one. None where a fold would have only relevant or only irrelevant results to learn from. One thread, so that the
    same data give the same bits.
    """
    folds = list(_folds(labels))
    if any(relevant[rest].all() or not relevant[rest].any() for rest, _ in folds):
        return None
    with threadpool_limits(limits=1):
        trials = [_cross_validated(values, relevant, folds, strength) for strength in _STRENGTHS]
        losses = [float(log_loss(relevant.ravel(), trial.ravel(), labels=[False, True])) for trial in trials]
        best = int(np.argmin(losses))
        model = _logistic(values, relevant, _STRENGTHS[best])
    return Fit(model, _STRENGTHS[best], losses[best], trials[best].astype(np.float32))


def _folds(labels: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The rest and the fold; parts are random already, so every fifth label is as good as any."""
    number = np.unique(labels, return_inverse=True)[1] % _FOLDS
    for fold in range(_FOLDS):
        yield np.flatnonzero(number != fold), np.flatnonzero(number == fold)


def _cross_validated(
    values: Float64,
    relevant: NDArray[np.bool_],
    folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    strength: float,
) -> Float64:
    probabilities = np.empty(relevant.shape)
    for rest, fold in folds:
        probabilities[fold] = _logistic(values[rest], relevant[rest], strength).probability(values[fold])
    return probabilities


def _logistic(values: Float64, relevant: NDArray[np.bool_], strength: float) -> Logistic:
    flat = values.reshape(-1, values.shape[-1])
    center, scale = flat.mean(axis=0), flat.std(axis=0)
    scale = np.where(scale < _SMALLEST_SCALE, 1.0, scale)
    regression = LogisticRegression(C=strength, max_iter=1000)
    regression.fit((flat - center) / scale, relevant.ravel())
    return Logistic(center, scale, regression.coef_[0].astype(np.float64), float(regression.intercept_[0]))
