"""Find the labels that are most likely wrong: a model that did not learn from a query disagrees with its label.

This is confident learning, pruned by class (Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in
Dataset Labels", JAIR 70, 2021, §3). A label is doubted where the model gives the other class at least the probability
that it gives that class, on average, where the labels name it: a model that is timid about a class is not held against
it. Each of the two kinds of error is ranked by itself, as most results are irrelevant and one list would hold one kind.

The order within a kind is our own, because the results of a query say something of each other: nearly every query has
one answer or a few. It was chosen among three orders for each kind on five public sets with labels moved on purpose,
and tried on others (docs/benchmarks/label-checks.md).
"""

from dataclasses import dataclass

import numpy as np

from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.model import EstimatedRelevance
from taugate.retrieval.policy.background import Float64
from taugate.retrieval.policy.policy import Mask

# Keeps log-odds and ratios finite: probabilities are float32, and a model may be sure to the last bit.
_SUREST = 1e-7


@dataclass(frozen=True)
class DoubtfulLabel:
    """A label that may be wrong.

    Attributes:
        row: Of the query among the answerable ones.
        rank: Of the result, from 0.
        probability: That the result is relevant, by a model that did not learn from this query.
        rival: Rank of the likeliest result of the query with the opposite label; None where no result has it.
    """

    row: int
    rank: int
    probability: float
    rival: int | None


@dataclass(frozen=True)
class DoubtfulLabels:
    """The most doubtful labels of each kind, the most doubtful first, with at most one of a kind for each query.

    Attributes:
        irrelevant: Results that are labelled relevant and are probably not.
        missing: Results without a label that are probably relevant.
    """

    irrelevant: list[DoubtfulLabel]
    missing: list[DoubtfulLabel]


def doubtful_labels(probabilities: Float64, judged: JudgedQueries, most: int) -> DoubtfulLabels:
    """Find the labels that a model disagrees with most.

    Args:
        probabilities: (n, K) that each result is relevant, by models that did not learn from its query
            (`cross_fitted`).
        judged: The n answerable queries with their results.
        most: Number of labels of each kind. Fewer come back where the model disagrees with fewer, and none where all
            results have the same label.
    """
    relevant, unlabelled = judged.relevant & judged.labelled, ~judged.relevant & judged.labelled
    if not relevant.any() or not unlabelled.any():
        return DoubtfulLabels([], [])
    # The thresholds of eq. 2: the mean probability of a class where the labels name it.
    surely_relevant = probabilities[relevant].mean()
    surely_irrelevant = (1 - probabilities[unlabelled]).mean()
    # A label looks the worse, the likelier the best result is that it passes over.
    best_unlabelled = np.where(unlabelled, probabilities, 0.0).max(axis=1, keepdims=True)
    passes_over = best_unlabelled / np.maximum(probabilities, _SUREST)
    # A result is the likelier to lack a label, the less likely any labelled result of its query is the answer.
    no_answer_yet = np.where(relevant, 1 - probabilities, 1.0).prod(axis=1, keepdims=True)
    doubted = relevant & (1 - probabilities >= surely_irrelevant)
    lacking = unlabelled & (probabilities >= surely_relevant)
    return DoubtfulLabels(
        irrelevant=_worst(np.where(doubted, passes_over, 0.0), probabilities, unlabelled, most),
        missing=_worst(np.where(lacking, probabilities * no_answer_yet, 0.0), probabilities, relevant, most),
    )


def cross_fitted(estimated: EstimatedRelevance, roles: QueryRoles) -> Float64:
    """Return the probability of each result by a model that was not fitted on its query, (n, K) float64.

    The queries that fitted the model get those of its cross-validation, recalibrated like all others. The recalibration
    itself, three numbers, learned from the queries that did not fit.

    Args:
        estimated: The model with its probabilities.
        roles: Which of the n queries fitted it.
    """
    probabilities = estimated.answerable.astype(np.float64)
    folds = np.clip(estimated.fit.out_of_fold.astype(np.float64), _SUREST, 1 - _SUREST)
    odds = estimated.relevance.model.recalibration.apply(np.log(folds) - np.log1p(-folds))
    probabilities[roles.fit] = 1 / (1 + np.exp(-odds))
    return probabilities


def _worst(doubt: Float64, probabilities: Float64, opposite: Mask, most: int) -> list[DoubtfulLabel]:
    """Take the most doubtful result of each query, and the `most` most doubtful of these with a doubt above 0."""
    ranks, worst = doubt.argmax(axis=1), doubt.max(axis=1)
    rivals = np.where(opposite, probabilities, -1.0).argmax(axis=1)
    return [
        DoubtfulLabel(
            row,
            int(ranks[row]),
            float(probabilities[row, ranks[row]]),
            int(rivals[row]) if opposite[row].any() else None,
        )
        for row in np.argsort(-worst, kind="stable")[:most].tolist()
        if worst[row] > 0
    ]
