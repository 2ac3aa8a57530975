"""Put the model's probabilities right on queries that it was not fitted on: Platt scaling of its log-odds."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from retrieval.relevance.background import Float64
from retrieval.relevance.model import Logistic

# The targets below keep the slope finite; the ridge penalty of scikit-learn is not wanted beside them.
_NO_PENALTY = 1e9


def scaled(model: Logistic, values: Float64, relevant: NDArray[np.bool_]) -> Logistic:
    """The same model with log-odds slope · log-odds + offset, fitted on queries other than its own.

    values: (q, K, F) features, relevant: (q, K). Platt, "Probabilistic Outputs for Support Vector Machines", 1999,
    §2.2, with its targets (N₊ + 1) / (N₊ + 2) and 1 / (N₋ + 2) in place of 1 and 0. A model is too sure of what it was
    fitted on, and documents are described by how they score against its queries; both end here. The map rises
    strictly but for the rounding to float32, so that the cuts by probability are those of before: queries that certify
    one may help to fit the map. As it was, where these have only relevant or only irrelevant results, or where the map
    would fall, which says that the model orders unseen results no better than chance.
    """
    positive = int(relevant.sum())
    negative = relevant.size - positive
    if not positive or not negative:
        return model
    odds = model.log_odds(values).ravel()
    target = np.where(relevant.ravel(), (positive + 1) / (positive + 2), 1 / (negative + 2))
    line = LogisticRegression(C=_NO_PENALTY, max_iter=1000)
    with threadpool_limits(limits=1):
        line.fit(
            np.tile(odds, 2)[:, None],
            np.repeat([True, False], len(odds)),
            sample_weight=np.concatenate([target, 1 - target]),
        )
    slope, offset = float(line.coef_[0, 0]), float(line.intercept_[0])
    if slope <= 0:
        return model
    return replace(model, weights=slope * model.weights, intercept=slope * model.intercept + offset)
