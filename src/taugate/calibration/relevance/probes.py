"""Questions that no document answers, with their results: what ρ and relevance are chosen by and measured on.

There are three kinds: questions about other subjects, which ship with Taugate; near misses, made from labelled queries
(`taugate.data.generation.near_misses`, and labelled queries without the documents that answer them); and the user's
own unanswerable queries.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.inputs import DeepFigures, SearchedQueries, clusters
from taugate.calibration.metrics.judging import judge_queries
from taugate.calibration.relevance.model import estimate_relevance
from taugate.data.beir import Dataset
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.relevance.fitting import AppliedRelevance, UnansweredQuestions
from taugate.policy.arrays import Float32, QueryVectors, Ranking
from taugate.policy.policy import Mask
from taugate.policy.relevance import Relevance
from taugate.release.outcome_records import Machine
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.hybrid import words_of
from taugate.retrieval.index.top_k import Index, Searchable

Positions = NDArray[np.int64]
# Words of four letters or more carry the subject of a question; shorter ones are mostly function words.
_WORD = re.compile(r"\w{4,}")
# A question is about the corpus if its best result has at least half of its words, as relevant results do; on
# squad_v2_dev and scifact no question about another subject has as many and scores as high as the median answer.
_MIN_SHARED = 0.5
# Further results that a search fetches, so that some remain once the relevant ones are taken out.
_BEYOND = 20


@dataclass(frozen=True)
class LabelledSearch(SearchedQueries):
    """A data set after its labelled queries were searched by their vectors."""

    dataset: Dataset  # labelled queries and documents
    encoded: EncodedTexts  # vectors of the data set
    index: Index

    @property
    def score_name(self) -> str:
        """What the index compares documents by."""
        hybrid = words_of(self.index)
        shared = "" if hybrid is None else f" + {hybrid.weight:g} · shared words"
        return f"cosine similarity{shared}"

    def document(self, number: int) -> Document:
        """Return the passage at a position."""
        return self.dataset.documents[number]

    def deep(self, members: Positions) -> DeepFigures:
        """Search the answerable queries at `members` for 100 results."""
        queries = [self.dataset.answerable[position] for position in members.tolist()]
        return DeepFigures.measure(queries, self.encoded.answerable[members], self.index, self.dataset.parents)

    @cached_property
    def off_topic(self) -> UnansweredQuestions:
        """The questions about other subjects in the order of their table, each a cluster of its own."""
        vectors = self.encoded.off_topic
        clusters = int(self.cluster_ids.max(initial=-1)) + 1 + np.arange(len(vectors))
        return UnansweredQuestions(self.index.search(vectors, self._k), vectors, clusters)

    @cached_property
    def near_misses(self) -> list[tuple[UnansweredQuestions, Positions]]:
        """Two kinds made from answerable queries, each with the (m,) positions of these; the second may be missing."""
        top, rows = removed_documents(self.dataset, self.encoded, self.index, self._k)
        kinds = [(UnansweredQuestions(top, self.encoded.answerable[rows], self.cluster_ids[rows]), rows)]
        near = self.encoded.near_misses
        if near is not None and len(near.vectors):
            top = self.index.search(near.vectors, self._k)
            kinds.append((UnansweredQuestions(top, near.vectors, self.cluster_ids[near.sources]), near.sources))
        return kinds

    def off_topic_relevance(self, applied: AppliedRelevance | None) -> Float32 | None:
        """Estimate the relevance of the results of `off_topic`, (o, K) float32; None without a model of this search."""
        questions, model = self.off_topic, None if applied is None else applied.of_vectors
        return None if model is None else model.estimate(questions.vectors, questions.top)

    @property
    def own(self) -> UnansweredQuestions:
        """The user's unanswerable queries."""
        clusters = self.cluster_ids[len(self.judged) :]
        return UnansweredQuestions(self.unanswerable, self.encoded.unanswerable, clusters, own=True)

    @property
    def _k(self) -> int:
        return int(self.judged.top.scores.shape[1])

    def off_topic_remaining(self, right_answers: Float32) -> Mask:
        """Return which questions about other subjects the corpus does not seem to answer, (o,) bool.

        Args:
            right_answers: (n,) float32, best scores of queries that find a relevant document.
        """
        return ~seem_answered(self.dataset, self.off_topic.top, right_answers)


def seem_answered(dataset: Dataset, top: Ranking, right_answers: Float32) -> Mask:
    """Return a mask of the off-topic questions that the corpus seems to answer, (o,) bool.

    Such a question scores above the median right answer, and its best result has half of its words.

    Args:
        top: Results of the o questions, one or more each.
        right_answers: (n,) float32, best scores of queries that find a relevant document; without any, no question
            seems answered.
    """
    answered = np.zeros(len(top), dtype=np.bool_)
    if len(right_answers):
        for row in np.flatnonzero(top.scores[:, 0] > np.median(right_answers)).tolist():
            text = dataset.documents[int(top.positions[row, 0])].encoded_text
            answered[row] = _shares_words(dataset.off_topic[row].text, text)
    return answered


def removed_documents(dataset: Dataset, encoded: EncodedTexts, index: Index, k: int) -> tuple[Ranking, Positions]:
    """Search answerable queries, and take the documents that answer them out of the results.

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
    kept = Ranking(
        np.take_along_axis(top.scores[rows], order, axis=1), np.take_along_axis(top.positions[rows], order, axis=1)
    )
    return kept, rows


def _shares_words(question: str, text: str) -> bool:
    words = {*_WORD.findall(question.casefold())}
    return bool(words) and len(words & {*_WORD.findall(text.casefold())}) >= _MIN_SHARED * len(words)


@dataclass(frozen=True)
class ResultScorer:
    """Scores results by a model that has not seen users' queries, so that their judgements can correct it."""

    # Model fitted on generated queries; None if these are too few, and the share of the largest possible score of
    # a result is used
    model: Relevance | None
    max_score: float = 1.0  # largest score of a result: 1 for the cosine, 1 + w with a lexical part

    @classmethod
    def fit(cls, dataset: Dataset, encoded: EncodedTexts, index: Searchable, k: int, seed: int) -> Self:
        """Fit the model on the generated queries.

        Args:
            k: K, the number of results per query.
            seed: Seed of the division into queries that fit the model and queries that recalibrate it.
        """
        hybrid = words_of(index)
        similarity = cls(None, 1.0 if hybrid is None else 1.0 + hybrid.weight)
        generated = [] if dataset.other_queries is None else dataset.other_queries.generated
        if encoded.generated is None or not generated:
            return similarity
        judged = judge_queries(generated, encoded.generated, index, k, dataset.documents.parents)
        roles = QueryRoles.assign(np.arange(len(judged)), SamplingUnits.from_clusters(clusters(generated)), seed)
        if roles is None:
            return similarity
        fitted = estimate_relevance(judged, encoded.generated, roles, encoded.documents, encoded.lengths)
        return cls(fitted.of_vectors) if fitted and fitted.of_vectors else similarity

    @property
    def name(self) -> Machine:
        """Name of the machine in the manifest."""
        return Machine.SIMILARITY if self.model is None else Machine.GENERATED

    def score(self, vectors: QueryVectors, top: Ranking) -> Float32:
        """Return the score of each result, (q, K) float32 in 0…1.

        Args:
            vectors: (q, d) float32 vectors of the queries.
            top: (q, K) results of the queries.
        """
        if self.model is not None:
            return self.model.estimate(vectors, top)
        shares: Float32 = np.clip(top.scores / np.float32(self.max_score), 0.0, 1.0)
        return shares
