"""The questions of a calibration as a table, and the labels that are most likely wrong, for a person to check.

Finds the labels that are most likely wrong, by the disagreement of a model that did not learn from their query. This is
confident learning, pruned by class (Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset
Labels", JAIR 70, 2021, §3). A label is doubtful if the model gives the opposite class at least the mean probability
that it gives to results labelled with that class, which allows for a model that is timid about a class. The two kinds
of error are ranked separately, because most results are irrelevant and a joint list would hold one kind only.

The order within a kind is new, because the results of a query depend on each other: nearly every query has one answer
or a few. It was chosen among three orders for each kind on five public sets with deliberately moved labels, and tested
on others (benchmarks/decisions.md).
"""

from dataclasses import dataclass, replace

import numpy as np

from taugate.calibration.report.tradeoff import RetrievedDocument, retrieved_document, shortened
from taugate.calibration.study.outcomes import Calibrated, calibration_questions
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.ranking import JudgedQueries
from taugate.evidence.relevance.fitting import EstimatedRelevance
from taugate.policy.arrays import Float64
from taugate.policy.policy import Mask
from taugate.release.queries import CalibrationQuestion, Outcome

# Keeps log-odds and ratios finite: probabilities are float32 and may be exactly 0 or 1.
_SUREST = 1e-7

MAX_DOUBTFUL = 20  # labels shown, half of each kind
_MAX_NAMED = 3  # document ids shown per query

# More than anybody reads, few enough for a page that opens from a mail (60 kB); the playground lists all.
MAX_ROWS = 300
# In the order of the table: those that something is wrong with come first.
OUTCOMES: dict[Outcome, str] = {
    "lost": "lost",
    "refused": "refused",
    "answered": "answered",
    "missed": "not in the top K",
    "kept": "kept",
}


@dataclass(frozen=True)
class DoubtfulLabel:
    """A label that may be wrong."""

    row: int
    rank: int  # rank of the result, from 0
    probability: float  # probability that the result is relevant, by a model that did not learn from this query
    rival: int | None  # rank of the query's most probable result with the opposite label; None if there is none


@dataclass(frozen=True)
class DoubtfulLabels:
    """The most doubtful labels of each kind in descending order, with at most one of a kind for each query."""

    irrelevant: list[DoubtfulLabel]  # results that are labelled relevant and probably are not
    missing: list[DoubtfulLabel]


def doubtful_labels(probabilities: Float64, judged: JudgedQueries, count: int) -> DoubtfulLabels:
    """Find the labels with which a model disagrees most.

    Args:
        probabilities: (n, K) probability that a result is relevant, by models that did not learn from its query
            (`cross_fitted`).
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


@dataclass(frozen=True)
class ShownLabel:
    """A doubtful label with the texts that a person needs to judge it.

    The relevance of both documents is estimated by a model that was not fitted on the query.
    """

    id: str
    text: str
    document: RetrievedDocument
    rival: RetrievedDocument | None  # the most relevant result with the opposite label, if any
    named: list[str]
    unnamed: int


@dataclass(frozen=True)
class ShownLabels:
    """The labels that the section shows, by the kinds of `DoubtfulLabels`."""

    irrelevant: list[ShownLabel]
    missing: list[ShownLabel]


def label_errors(calibrated: Calibrated) -> ShownLabels | None:
    """Find the labels of the answerable queries that are most likely wrong.

    None if no relevance model was fitted on these queries; an earlier release's model may have seen some of them.
    """
    if calibrated.fitted is None or calibrated.roles is None:
        return None
    probabilities = cross_fitted(calibrated.fitted, calibrated.roles)
    labels = doubtful_labels(probabilities, calibrated.scored.judged, MAX_DOUBTFUL // 2)
    return ShownLabels(
        [_shown(calibrated, probabilities, label) for label in labels.irrelevant],
        [_shown(calibrated, probabilities, label) for label in labels.missing],
    )


def _shown(calibrated: Calibrated, probabilities: Float64, label: DoubtfulLabel) -> ShownLabel:
    def document(rank: int) -> RetrievedDocument:
        shown = retrieved_document(calibrated, label.row, rank)
        return replace(shown, relevance=float(probabilities[label.row, rank]))

    search = calibrated.search
    query = search.dataset.answerable[label.row]
    named = [search.document(position).document_id for position in [*query.relevant][:_MAX_NAMED]]
    return ShownLabel(
        query.id,
        shortened(query.text),
        document(label.rank),
        None if label.rival is None else document(label.rival),
        named,
        len(query.relevant) - len(named),
    )


@dataclass(frozen=True)
class QuestionRow:
    """A question and what becomes of it."""

    text: str
    question: CalibrationQuestion
    outcome: Outcome
    order: int


@dataclass(frozen=True)
class QuestionTable:
    """The table."""

    rows: list[QuestionRow]  # at most MAX_ROWS rows; of more, those that are closest to another outcome
    total: int


def question_table(calibrated: Calibrated) -> QuestionTable:
    """List the questions, those that lose their answer first, then by their distance to another outcome."""
    rule, threshold = calibrated.answer_rule, calibrated.policy.tau
    rho = None if rule is None else rule.tau
    rows = []
    for question in calibration_questions(calibrated):
        outcome = question.outcome(threshold, rho)
        is_right = outcome == ("kept" if question.kind == "answerable" else "refused")
        order = len(OUTCOMES) if is_right else [*OUTCOMES].index(outcome)
        rows.append(QuestionRow(shortened(question.text), question, outcome, order))
    rows.sort(key=lambda row: (row.order, row.question.distance(threshold, rho)))
    return QuestionTable(rows[:MAX_ROWS], len(rows))
