"""Collects the questions from which relevance learns that a query may have no answer, with their results."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.probes import removed_documents, seem_answered
from taugate.calibration.metrics.clusters import ClusterIds
from taugate.calibration.metrics.measure import QueryPart
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.unanswered import Unanswered, UnansweredQuestions
from taugate.calibration.study.refusing import LabelledSearch
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.vectors.queries import QueryVectors


def question_parts(parts: Mapping[str, QueryPart], roles: QueryRoles, queries: int) -> tuple[Mask, Mask]:
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


def collect_unanswered(
    search: LabelledSearch, cluster_ids: ClusterIds, roles: QueryRoles, parts: tuple[Mask, Mask]
) -> Unanswered:
    """Search every kind of question that no document answers.

    Args:
        search: The searched data set.
        cluster_ids: (n + u,) clusters of the answerable queries, then of the unanswerable ones.
        roles: Roles of the answerable queries; which off-topic questions seem answered depends on the fitting ones.
        parts: Result of `question_parts`.
    """
    dataset, encoded, index = search.dataset, search.encoded, search.index
    k, (learns, measures) = search.judged.top.scores.shape[1], parts

    def made_from(sources: NDArray[np.int64], vectors: QueryVectors, top: TopK) -> UnansweredQuestions:
        return UnansweredQuestions(top, vectors, learns[sources], measures[sources], cluster_ids[sources])

    removed, rows = removed_documents(dataset, encoded, index, k)
    close = [made_from(rows, encoded.answerable[rows], removed)]
    near = encoded.near_misses
    if near is not None and len(near.vectors):
        close.append(made_from(near.sources, near.vectors, index.search(near.vectors, k)))
    if search.unanswerable.scores.shape[1] == k:  # not if queries are themselves documents of a corpus of about K
        own = cluster_ids[len(learns) :]
        chooses: Mask = np.unique(own, return_inverse=True)[1] % 2 == 0  # clusters learn and measure in turn
        close.append(UnansweredQuestions(search.unanswerable, encoded.unanswerable, chooses, ~chooses, own))
    return Unanswered(_off_topic(search, k, roles, int(cluster_ids.max()) + 1), tuple(close))


def _off_topic(search: LabelledSearch, k: int, roles: QueryRoles, first_cluster: int) -> UnansweredQuestions:
    """Search the questions about other subjects; they learn and measure in turn, so that every language does both."""
    vectors, fitting = search.encoded.off_topic, search.judged.take(roles.fit)
    top = search.index.search(vectors, k)
    remains = ~seem_answered(search.dataset, top, fitting.top.scores[fitting.accuracy() > 0, 0])
    turn = np.cumsum(remains) % 2 == 1
    clusters = first_cluster + np.arange(len(vectors))
    return UnansweredQuestions(top, vectors, remains & turn, remains & ~turn, clusters)
