"""Finds the labels that are most likely wrong, by the disagreement of a model that did not learn from their query.

This is confident learning, pruned by class (Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in
Dataset Labels", JAIR 70, 2021, §3). A label is doubtful if the model gives the opposite class at least the mean
probability that it gives to results labelled with that class, which allows for a model that is timid about a class. The
two kinds of error are ranked separately, because most results are irrelevant and a joint list would hold one kind only.

The order within a kind is new, because the results of a query depend on each other: nearly every query has one answer
or a few. It was chosen among three orders for each kind on five public sets with deliberately moved labels, and tested
on others (docs/benchmarks/label-checks.md).
"""

from dataclasses import dataclass

import numpy as np

from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.model import EstimatedRelevance
from taugate.retrieval.policy.background import Float64
from taugate.retrieval.policy.policy import Mask

# Keeps log-odds and ratios finite: probabilities are float32 and may be exactly 0 or 1.
_SUREST = 1e-7


@dataclass(frozen=True)
class DoubtfulLabel:
    """A label that may be wrong.

    Attributes:
        row: Row of the query among the answerable ones.
        rank: Rank of the result, from 0.
        probability: Probability that the result is relevant, by a model that did not learn from this query.
        rival: Rank of the query's most probable result with the opposite label; None if there is none.
    """

    row: int
    rank: int
    probability: float
    rival: int | None


@dataclass(frozen=True)
class DoubtfulLabels:
    """The most doubtful labels of each kind in descending order, with at most one of a kind for each query.

    Attributes:
        irrelevant: Results that are labelled relevant and probably are not.
        missing: Results without a label that are probably relevant.
    """

    irrelevant: list[DoubtfulLabel]
    missing: list[DoubtfulLabel]


def doubtful_labels(probabilities: Float64, judged: JudgedQueries, count: int) -> DoubtfulLabels:
    """Find the labels with which a model disagrees most.

    Args:
        probabilities: (n, K) probability that a result is relevant, by models that did not learn from its query
            (`cross_fitted`).
        judged: The n answerable queries with their results.
        count: Largest number of labels of each kind. There are none if all results have the same label.
    """
    relevant, unlabelled = judged.relevant & judged.labelled, ~judged.relevant & judged.labelled
    if not relevant.any() or not unlabelled.any():
        return DoubtfulLabels([], [])
    # The thresholds of eq. 2: the mean probability of a class over the results labelled with it.
    surely_relevant = probabilities[relevant].mean()
    surely_irrelevant = (1 - probabilities[unlabelled]).mean()
    # A label is more doubtful, the more probable the best unlabelled result is.
    best_unlabelled = np.where(unlabelled, probabilities, 0.0).max(axis=1, keepdims=True)
    passes_over = best_unlabelled / np.maximum(probabilities, _SUREST)
    # A label is more likely missing, the less probable it is that a labelled result of the query is the answer.
    no_answer_yet = np.where(relevant, 1 - probabilities, 1.0).prod(axis=1, keepdims=True)
    doubted = relevant & (1 - probabilities >= surely_irrelevant)
    lacking = unlabelled & (probabilities >= surely_relevant)
    return DoubtfulLabels(
        irrelevant=_worst(np.where(doubted, passes_over, 0.0), probabilities, unlabelled, count),
        missing=_worst(np.where(lacking, probabilities * no_answer_yet, 0.0), probabilities, relevant, count),
    )


def cross_fitted(estimated: EstimatedRelevance, roles: QueryRoles) -> Float64:
    """Return the probability of each result by a model that was not fitted on its query, (n, K) float64.

    The queries that fitted the model get the probabilities of its cross-validation, recalibrated like all others. The
    three numbers of the recalibration were learned from the queries that did not fit.

    Args:
        estimated: The model with its probabilities.
        roles: Roles of the n queries.
    """
    probabilities = estimated.answerable.astype(np.float64)
    folds = np.clip(estimated.fit.out_of_fold.astype(np.float64), _SUREST, 1 - _SUREST)
    odds = estimated.relevance.model.recalibration.apply(np.log(folds) - np.log1p(-folds))
    probabilities[roles.fit] = 1 / (1 + np.exp(-odds))
    return probabilities


def _worst(doubt: Float64, probabilities: Float64, opposite: Mask, count: int) -> list[DoubtfulLabel]:
    """Take the most doubtful result of each query, and the `count` most doubtful of these with a doubt above 0."""
    ranks, worst = doubt.argmax(axis=1), doubt.max(axis=1)
    rivals = np.where(opposite, probabilities, -1.0).argmax(axis=1)
    return [
        DoubtfulLabel(
            row,
            int(ranks[row]),
            float(probabilities[row, ranks[row]]),
            int(rivals[row]) if opposite[row].any() else None,
        )
        for row in np.argsort(-worst, kind="stable")[:count].tolist()
        if worst[row] > 0
    ]
