"""Fit the log-odds that a query has an answer: logistic regression on what is known of it before it is cut."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from taugate.retrieval.policy.background import Float64
from taugate.retrieval.policy.model import Logistic

# The inverse strength of the ridge penalty on standardised signals. docs/benchmarks/abstention.md has what others gave.
_STRENGTH = 0.3
_FOLDS = 5
# A signal that is the same for every query (the margin, with K = 1) carries nothing and must not be divided by nothing.
_SMALLEST_SCALE = 1e-9


def fit(values: Float64, answerable: NDArray[np.bool_]) -> Logistic:
    """Fit on q queries of both kinds; values: (q, F) signals.

    Both kinds weigh the same, however many there are of each: what counts is how they are ordered, and the share of
    unanswerable queries that a team labels says nothing of what users ask. One thread: the same data give the same
    bits.
    """
    center, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale < _SMALLEST_SCALE, 1.0, scale)
    regression = LogisticRegression(C=_STRENGTH, class_weight="balanced", max_iter=1000)
    with threadpool_limits(limits=1):
        regression.fit((values - center) / scale, answerable)
    return Logistic(center, scale, regression.coef_[0].astype(np.float64), float(regression.intercept_[0]))


def out_of_fold(values: Float64, answerable: NDArray[np.bool_], labels: NDArray[np.int64]) -> Float64:
    """Log-odds of each query by a model that has seen no query on its documents, (q,).

    labels: (q,) clusters, numbered at random, so that every fifth of them is as good as any. Not a number where a fold
    leaves only one kind to learn from.
    """
    odds = np.full(len(values), np.nan)
    for rest, fold in _folds(labels):
        if answerable[rest].any() and not answerable[rest].all():
            odds[fold] = fit(values[rest], answerable[rest]).log_odds(values[fold])
    return odds


def _folds(labels: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Queries of the other folds, and of each fold: whole clusters."""
    for fold in range(_FOLDS):
        inside = labels % _FOLDS == fold
        yield ~inside, inside
