"""Questions that no document answers, with their scores: what the default refusal is chosen by and measured on.

There are three kinds: questions about other subjects, which ship with Taugate; near misses, made from labelled queries
(`taugate.ingestion.queries.near_misses`, and labelled queries without the documents that answer them); and the user's
own unanswerable queries. All off-topic questions choose ρ, and each is counted by the ρ that the others choose
(`refusal.off_topic_refused`); half of them are counted if an earlier ρ is kept. Unanswerable queries are divided: one
half chooses ρ, the other is counted. Near misses are only counted: they score among the right answers, so that refusing
more of them costs about as many.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.clusters import ClusterIds, SamplingUnits
from taugate.ingestion.dataset.beir import Dataset
from taugate.ingestion.dataset.off_topic import off_topic_table
from taugate.ingestion.queries.question_rule import QuestionRule
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.vectors.similarity import Float32

Positions = NDArray[np.int64]
# Words of four letters or more carry the subject of a question; shorter ones are mostly function words.
_WORD = re.compile(r"\w{4,}")
# A question is about the corpus if its best result has at least half of its words, as relevant results do; on
# squad_v2_dev and scifact no question about another subject has as many and scores as high as the median answer.
_MIN_SHARED = 0.5
# Further results that a search fetches, so that some remain once the relevant ones are taken out.
_BEYOND = 20


@dataclass(frozen=True)
class Probes:
    """Questions of one kind.

    Attributes:
        scores: (n,) float32, the best similarity of each question.
        chooses: (n,) bool, whether the question helps to choose ρ.
        reports: (n,) bool, whether the question counts in the report; never both.
        clusters: (n,) cluster of each question; questions made from one query, or about one document, share it.
    """

    scores: Float32
    chooses: Mask
    reports: Mask
    clusters: ClusterIds

    @property
    def choosing(self) -> Float32:
        """Scores of the questions that help to choose ρ."""
        return self.scores[self.chooses]

    @property
    def reported(self) -> Float32:
        """Scores of the questions that count in the report."""
        return self.scores[self.reports]

    @property
    def reported_units(self) -> SamplingUnits:
        """Sampling units of the questions that count in the report."""
        return SamplingUnits.from_clusters(self.clusters[self.reports])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join questions of several sources into one kind."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


@dataclass(frozen=True)
class LabelledParts:
    """The parts that the answerable queries take.

    Attributes:
        limits: (n,) bool, whether the query limits how many right answers ρ loses.
        reports: (n,) bool, whether the query counts in the report.
        certifies: (n,) bool, whether the query may certify a loss, so that ρ must not depend on it.
        clusters: (n + u,) clusters of the answerable queries, then of the unanswerable ones.
    """

    limits: Mask
    reports: Mask
    certifies: Mask
    clusters: ClusterIds

    @property
    def answerable(self) -> ClusterIds:
        """Clusters of the answerable queries, (n,)."""
        return self.clusters[: len(self.limits)]

    def of_sources(self, scores: Float32, sources: Positions) -> Probes:
        """Return the near misses made from answerable queries; all of them count in the report.

        Args:
            scores: (m,) float32.
            sources: (m,) positions of the answerable queries.
        """
        reports = np.ones(len(scores), dtype=np.bool_)
        return Probes(scores, ~reports, reports, self.answerable[sources])

    def of_unanswerable(self, scores: Float32) -> Probes:
        """Divide the user's unanswerable queries: every second cluster chooses, unless one of its queries certifies.

        Args:
            scores: (u,) float32 scores of all unanswerable queries.
        """
        clusters = self.clusters[len(self.limits) :]
        chooses = np.unique(clusters, return_inverse=True)[1] % 2 == 0
        chooses &= ~np.isin(clusters, self.answerable[self.certifies])
        return Probes(scores, chooses, ~chooses, clusters)


def off_topic_probes(
    dataset: Dataset, encoded: EncodedTexts, index: Index, right_answers: Float32
) -> tuple[Probes, int]:
    """Score the questions about other subjects, and leave out those that the corpus seems to answer.

    Only questions in the language of the labelled queries count, or all of them if none is in it: an encoder of one
    language gives foreign questions low scores, so these would hide how many of the users' own are answered.

    Args:
        dataset: Documents and questions.
        encoded: Vectors of the questions.
        index: Index of the documents.
        right_answers: Scores of the queries that limit ρ and find a relevant document.

    Returns:
        The questions, and how many were left out.
    """
    top = index.search(encoded.off_topic, 1)
    language = QuestionRule.for_texts([query.text for query in dataset.answerable]).language
    asked: Mask = np.array([question.language == language for question in off_topic_table()])
    if not asked.any():
        asked[:] = True
    remains = asked & ~seem_answered(dataset, top, right_answers)
    rows = np.arange(int(remains.sum()))
    return Probes(top.scores[remains, 0], rows % 2 == 0, rows % 2 == 1, rows), int((asked & ~remains).sum())


def seem_answered(dataset: Dataset, top: TopK, right_answers: Float32) -> Mask:
    """Return a mask of the off-topic questions that the corpus seems to answer, (o,) bool.

    Such a question scores above the median right answer, and its best result has half of its words.

    Args:
        dataset: Documents and questions.
        top: Results of the o questions, one or more each.
        right_answers: (n,) float32, best scores of queries that find a relevant document; without any, no question
            seems answered.
    """
    answered = np.zeros(len(top), dtype=np.bool_)
    if len(right_answers):
        for row in np.flatnonzero(top.scores[:, 0] > np.median(right_answers)).tolist():
            text = dataset.documents[int(top.positions[row, 0])].encoded_text
            answered[row] = _shares_words(dataset.off_topic[row], text)
    return answered


def removed_documents(dataset: Dataset, encoded: EncodedTexts, index: Index, k: int) -> tuple[TopK, Positions]:
    """Search answerable queries, and take the documents that answer them out of the results.

    Args:
        dataset: Labelled queries and documents.
        encoded: Vectors of the queries.
        index: Index of the documents.
        k: Number of results of a query.

    Returns:
        The (m, k) results, and positions, (m,), of the answerable queries of which k results remain.
    """
    top = index.search(encoded.answerable, min(k + _BEYOND, len(dataset.documents)))
    parents = dataset.documents.parents
    documents = top.positions if parents is None else parents[top.positions]
    removed = np.array(
        [
            [document in query.relevant or position in query.own_passages for position, document in found]
            for query, found in zip(dataset.answerable, np.dstack([top.positions, documents]).tolist(), strict=True)
        ]
    )
    rows = np.flatnonzero((~removed).sum(axis=1) >= k)
    order = np.argsort(removed[rows], axis=1, kind="stable")[:, :k]
    kept = TopK(
        np.take_along_axis(top.scores[rows], order, axis=1), np.take_along_axis(top.positions[rows], order, axis=1)
    )
    return kept, rows


def _shares_words(question: str, text: str) -> bool:
    words = {*_WORD.findall(question.casefold())}
    return bool(words) and len(words & {*_WORD.findall(text.casefold())}) >= _MIN_SHARED * len(words)
