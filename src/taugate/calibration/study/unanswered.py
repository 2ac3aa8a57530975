"""Divides the questions from which relevance learns that a query may have no answer."""

from collections.abc import Mapping

import numpy as np

from taugate.calibration.metrics.measure import PartName, QueryPart
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.calibration.relevance.unanswered import Unanswered, UnansweredQuestions
from taugate.retrieval.policy.policy import Mask


def question_parts(parts: Mapping[PartName, QueryPart], roles: QueryRoles, queries: int) -> tuple[Mask, Mask]:
    """Return which of n answerable queries make questions to learn from, and to measure with, (n,) bool each.

    Held-out queries measure, and all calibration queries learn: their questions only take part in the recalibration,
    which moves no result past another. Without held-out queries, those that did not fit the model measure.

    Args:
        parts: "calibration" and, with a holdout, "heldout".
        roles: Roles of the calibration queries.
        queries: n.
    """
    learns, measures = np.zeros(queries, dtype=np.bool_), np.zeros(queries, dtype=np.bool_)
    heldout = parts.get("heldout")
    learns[roles.fit if heldout is None else parts["calibration"].members] = True
    measures[roles.not_fitting if heldout is None else heldout.members] = True
    return learns, measures


def divide_unanswered(search: LabelledSearch, roles: QueryRoles, parts: tuple[Mask, Mask]) -> Unanswered | None:
    """Divide every kind of question that no document answers; None without off-topic questions to learn from.

    Off-topic questions that choose ρ learn, and the half that was written apart measures. Clusters of the user's own
    unanswerable queries learn and measure in turn.

    Args:
        search: The searched data set.
        roles: Roles of the answerable queries; which off-topic questions seem answered depends on the fitting ones.
        parts: Result of `question_parts`.
    """
    fitting = search.judged.take(roles.fit)
    remains = search.off_topic_remaining(fitting.top.scores[fitting.accuracy() > 0, 0])
    turn = np.array([question.chooses for question in search.dataset.off_topic])
    kinds: list[tuple[UnansweredQuestions, Mask, Mask]] = [(search.off_topic, remains & turn, remains & ~turn)]
    kinds += [(kind, parts[0][sources], parts[1][sources]) for kind, sources in search.near_misses]
    own = search.own
    if own.top.scores.shape[1] == search.off_topic.top.scores.shape[1]:  # else queries are themselves documents of few
        learns: Mask = np.unique(own.clusters, return_inverse=True)[1] % 2 == 0
        kinds.append((own, learns, ~learns))
    learning, measuring = ([kind.take(masks[part]) for kind, *masks in kinds if masks[part].any()] for part in range(2))
    return Unanswered(learning, measuring) if (remains & turn).any() else None
