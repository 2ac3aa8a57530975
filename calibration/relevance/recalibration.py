"""Put the model's probabilities right on queries that it was not fitted on: beta calibration of what it says."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from taugate.retrieval.policy.background import Float64
from taugate.retrieval.policy.model import Logistic, Recalibration

# The targets below keep the map finite; the ridge penalty of scikit-learn is not wanted beside them.
_NO_PENALTY = 1e9


def recalibrated(model: Logistic, values: Float64, relevant: NDArray[np.bool_]) -> Logistic:
    """The same model with a map of what it says, fitted on queries other than its own.

    values: (q, K, F) features, relevant: (q, K). A model is too sure of what it was fitted on, and documents are
    described by how they score against its queries; both end here. Beta calibration (Kull, Silva Filho and Flach,
    AISTATS 2017): a logistic regression on ln p and −ln(1 − p), to the targets (N₊ + 1) / (N₊ + 2) and 1 / (N₋ + 2) in
    place of 1 and 0 (Platt, "Probabilistic Outputs for Support Vector Machines", 1999, §2.2). On unseen documents it is
    as good as Platt's line or better, and isotonic regression and Venn–Abers are worse where labels are few
    (docs/benchmarks/calibration.md, "Recalibrations tried"). It rises strictly but for the rounding to float32, so that
    the cuts by probability are those of before: queries that certify one may help to fit the map. Isotonic regression
    has steps, which would move cuts.

    Where a or b would not be above 0 it is Platt's line, a = b. The model stays as it was where the queries have only
    relevant or only irrelevant results, or where the line would fall, which says that the model orders unseen results
    no better than chance.
    """
    positive = int(relevant.sum())
    negative = relevant.size - positive
    if not positive or not negative:
        return model
    odds = model.log_odds(values).ravel()
    against = np.logaddexp(0.0, odds)
    target = np.where(relevant.ravel(), (positive + 1) / (positive + 2), 1 / (negative + 2))
    (a, b), c = _regression(np.column_stack([odds - against, against]), target)
    if min(a, b) <= 0:
        (a,), c = _regression(odds[:, None], target)
        b = a
    return replace(model, recalibration=Recalibration(a, b, c)) if a > 0 else model


def _regression(said: Float64, target: Float64) -> tuple[list[float], float]:
    """Coefficients and intercept of a logistic regression to targets between 0 and 1; said: (n, F), target: (n,)."""
    regression = LogisticRegression(C=_NO_PENALTY, max_iter=1000)
    with threadpool_limits(limits=1):
        regression.fit(
            np.tile(said, (2, 1)),
            np.repeat([True, False], len(said)),
            sample_weight=np.concatenate([target, 1 - target]),
        )
    return regression.coef_[0].tolist(), float(regression.intercept_[0])
