"""Collects the questions from which relevance learns that a query may have no answer, with their results."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.clusters import ClusterIds
from taugate.calibration.metrics.measure import QueryPart
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.unanswered import Unanswered, UnansweredQuestions
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.vectors.similarity import Float32

# Further results that a search fetches, so that K remain once the relevant ones are taken out. Queries with more
# relevant documents among their results than that are left out.
_BEYOND = 20


def collect_unanswered(
    dataset: Dataset,
    encoded: EncodedTexts,
    index: Index,
    tops: tuple[TopK, TopK],
    cluster_ids: ClusterIds,
    parts: tuple[Mask, Mask],
) -> Unanswered:
    """Search every kind of question that no document answers.

    Args:
        dataset: Labelled queries and documents.
        encoded: Vectors of the data set.
        index: Index of the documents.
        tops: (n, K) results of the answerable queries, and (u, K) of the user's unanswerable ones.
        cluster_ids: (n + u,) clusters of the answerable queries, then of the unanswerable ones.
        parts: Which of the n answerable queries make questions to learn from, and to measure with; never both.
    """
    (answered, unanswerable), (learns, measures) = tops, parts
    k = answered.scores.shape[1]
    answerable = cluster_ids[: len(learns)]

    def made_from(sources: NDArray[np.int64], vectors: Float32, top: TopK) -> UnansweredQuestions:
        return UnansweredQuestions(top, vectors, learns[sources], measures[sources], answerable[sources])

    rows, removed = _without_relevant(dataset, encoded, index, k)
    close = [made_from(rows, encoded.answerable[rows], removed)]
    near = encoded.near_misses
    if near is not None:
        close.append(made_from(near.sources, near.vectors, index.search(near.vectors, k)))
    if unanswerable.scores.shape[1] == k:  # fewer if queries are documents of a corpus of about K
        own = cluster_ids[len(learns) :]
        chooses = np.unique(own, return_inverse=True)[1] % 2 == 0
        close.append(UnansweredQuestions(unanswerable, encoded.unanswerable, chooses, ~chooses, own))
    return Unanswered(_off_topic(encoded, index, k, int(cluster_ids.max()) + 1), tuple(close))


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


def _off_topic(encoded: EncodedTexts, index: Index, k: int, first_cluster: int) -> UnansweredQuestions:
    """Search the questions about other subjects; they learn and measure in turn, so that every language does both."""
    rows = np.arange(len(encoded.off_topic))
    top = index.search(encoded.off_topic, k)
    return UnansweredQuestions(top, encoded.off_topic, rows % 2 == 0, rows % 2 == 1, first_cluster + rows)


def _without_relevant(dataset: Dataset, encoded: EncodedTexts, index: Index, k: int) -> tuple[NDArray[np.int64], TopK]:
    """Take the relevant documents out of the results of the answerable queries.

    Returns:
        Positions of the m queries of which K results remain, and these (m, K) results.
    """
    top = index.search(encoded.answerable, min(k + _BEYOND, len(dataset.documents)))
    parents = dataset.documents.parents
    documents = top.positions if parents is None else parents[top.positions]
    taken = np.array(
        [
            [
                document in query.relevant or position in query.own_passages
                for position, document in zip(*row, strict=True)
            ]
            for query, *row in zip(dataset.answerable, top.positions.tolist(), documents.tolist(), strict=True)
        ]
    )
    rows = np.flatnonzero((~taken).sum(axis=1) >= k)
    order = np.argsort(taken[rows], axis=1, kind="stable")[:, :k]
    return rows, TopK(*(np.take_along_axis(array[rows], order, axis=1) for array in (top.scores, top.positions)))
