"""The search of a corpus in two stages: the candidates of the first one, in the order of a reranker's scores.

Everything is measured after both stages, so one certificate holds for what is served. The model of relevance has both
stages' scores, and queries are refused by the second stage's best score, or its distance from the others.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.acceptance.better_lists import JudgingQueries, StageResults
from taugate.calibration.encoding.rerankers import RequestedReranker
from taugate.calibration.metrics.inputs import (
    CalibrationInputs,
    grades_of,
    own_passages_of,
    relevant_passages,
    result_documents,
    search_excluding_own,
)
from taugate.calibration.progress import Job
from taugate.calibration.relevance import LabelledSearch, Positions
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.refusing import LabelledParts, RefusalQuestions
from taugate.calibration.study.study import DescribedTexts, Parts, Search
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.measure import QueryPart
from taugate.evidence.ranking import JudgedQueries
from taugate.evidence.relevance.fitting import AppliedRelevance, UnansweredQuestions
from taugate.policy.arrays import Float32, QueryVectors
from taugate.policy.score_relevance import SCALES, Components, RerankerScale
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.rerank.stage import FIRST_SCORE, Reranker, combined, rank


@dataclass(frozen=True)
class RerankedCandidates:
    """The candidates of m queries, with the scores of both stages."""

    first: TopK  # (m, N) candidates in the order of the first stage
    scores: Float32  # (m, N) float32 scores of the second stage

    @property
    def second(self) -> TopK:
        """The candidates in the order of the second stage."""
        return rank(self.scores, self.first)

    @property
    def first_scores(self) -> Float32:
        """The first stage's scores in the order of the second stage, (m, N) float32."""
        order = np.argsort(-self.scores, axis=1, kind="stable")
        return np.take_along_axis(self.first.scores, order, axis=1)


@dataclass(frozen=True)
class RerankedQueries(LabelledSearch):
    """The labelled queries and the questions without an answer after both stages."""

    scale: RerankerScale
    off_topic_candidates: RerankedCandidates
    candidates: TopK  # (n, N) candidates of the answerable queries in the order of the second stage

    @property
    def score_name(self) -> str:
        """What the second stage compares documents by."""
        return f"score of the second stage{SCALES[self.scale].note}"

    @property
    def shares(self) -> bool:
        """Whether a share of the best score means something: not for log-odds."""
        return SCALES[self.scale].zero

    @cached_property
    def off_topic(self) -> UnansweredQuestions:
        """See LabelledSearch.off_topic."""
        vectors = self.encoded.off_topic
        clusters = int(self.cluster_ids.max(initial=-1)) + 1 + np.arange(len(vectors))
        return UnansweredQuestions(_best(self.off_topic_candidates.second, self._k), vectors, clusters)

    def off_topic_relevance(self, applied: AppliedRelevance | None) -> Float32 | None:
        """See LabelledSearch.off_topic_relevance; the model has the scores of both stages."""
        first = {FIRST_SCORE: self.off_topic_candidates.first_scores[:, : self._k]}
        model = None if applied is None else applied.of_scores
        return None if model is None else model.estimate(self.off_topic.top.scores, first)

    @cached_property
    def near_misses(self) -> list[tuple[UnansweredQuestions, Positions]]:
        """The answerable queries without the candidates that answer them; those that keep K candidates."""
        top, k = self.candidates, self._k
        relevant = grades_of(self.dataset.answerable, top.positions, self.dataset.documents.parents) >= 1
        rows = np.flatnonzero((~relevant).sum(axis=1) >= k)
        order = np.argsort(relevant[rows], axis=1, kind="stable")[:, :k]
        kept = TopK(
            np.take_along_axis(top.scores[rows], order, axis=1), np.take_along_axis(top.positions[rows], order, axis=1)
        )
        return [(UnansweredQuestions(kept, self.encoded.answerable[rows], self.cluster_ids[rows]), rows)]


@dataclass(frozen=True)
class RerankedSearch(Search):
    """Searches the documents of a data set in two stages."""

    first: CorpusSearch
    reranker: Reranker
    answerable: RerankedCandidates
    unanswerable: RerankedCandidates
    off_topic: RerankedCandidates
    correct: Float32  # (n,) float32 scores of the most similar relevant passage, retrieved or not
    scale: RerankerScale
    first_stage_weight: float  # weight of the first stage's score in the second stage's

    @classmethod
    def score(cls, first: CorpusSearch, requested: RequestedReranker, reranker: Reranker, candidates: int) -> Self:
        """Score the candidates of all queries.

        Args:
            reranker: The same with the documents of the data set; scores them.
        """
        dataset, encoded = first.inputs.dataset, first.encoded
        weight = requested.reranker.config.first_stage_weight

        def scored(queries: Sequence[LabelledQuery], vectors: QueryVectors, name: str) -> RerankedCandidates:
            top = search_excluding_own(first.index, own_passages_of(queries), vectors, candidates)
            return first_scored([query.text for query in queries], top, name)

        def first_scored(texts: Sequence[str], top: TopK, name: str) -> RerankedCandidates:
            scores = score_pairs(reranker, texts, top.positions, first.inputs.job, name)
            return RerankedCandidates(top, combined(scores, top.scores, weight))

        answerable = scored(dataset.answerable, encoded.answerable, "ranking answerable queries")
        return cls(
            first,
            reranker,
            answerable,
            scored(dataset.unanswerable, encoded.unanswerable, "ranking unanswerable queries"),
            first_scored(
                dataset.off_topic_texts, first.index.search(encoded.off_topic, candidates), "ranking other questions"
            ),
            _correct_scores(first, reranker, answerable, weight),
            requested.reranker.scale(answerable.scores),
            weight,
        )

    @property
    def inputs(self) -> CalibrationInputs:
        """The data set, the division of its queries, and the settings."""
        return self.first.inputs

    @property
    def size(self) -> int:
        """N, the number of candidates of a query."""
        return int(self.answerable.scores.shape[1])

    def limited(self, candidates: int) -> Self:
        """Return the search with fewer candidates of each query, the best of the first stage."""

        def best(found: RerankedCandidates) -> RerankedCandidates:
            return RerankedCandidates(_best(found.first, candidates), found.scores[:, :candidates])

        answerable, unanswerable, off_topic = map(best, (self.answerable, self.unanswerable, self.off_topic))
        return replace(self, answerable=answerable, unanswerable=unanswerable, off_topic=off_topic)

    @property
    def first_results(self) -> StageResults:
        """The candidates in the order of the first stage."""
        return StageResults(self.answerable.first, self.unanswerable.first)

    @property
    def results(self) -> StageResults:
        """The candidates in the order of the second stage."""
        return StageResults(self.answerable.second, self.unanswerable.second)

    @property
    def judging(self) -> JudgingQueries:
        """The labelled queries, which judge the second stage."""
        dataset, settings = self.inputs.dataset, self.inputs.settings
        ids = self.queries.cluster_ids[len(self.answerable.scores) :]
        unanswerable = SamplingUnits.from_clusters(ids) if len(ids) else None
        gate = settings.candidates.gate
        return JudgingQueries(dataset.answerable, dataset.parents, self.inputs.units, unanswerable, settings.k, gate)

    @property
    def queries(self) -> RerankedQueries:
        """The labelled queries with their results after both stages."""
        return self._reranked

    @cached_property
    def _reranked(self) -> RerankedQueries:
        dataset, k = self.inputs.dataset, self.inputs.settings.k
        top, parents = _best(self.answerable.second, k), dataset.documents.parents
        grades = grades_of(dataset.answerable, top.positions, parents)
        judged = JudgedQueries(
            top=top,
            grades=grades,
            ideal=self.first.queries.judged.ideal,
            correct=self.correct,
            documents=None if parents is None else result_documents(dataset.answerable, top.positions, grades, parents),
        )
        return RerankedQueries(
            dataset,
            judged,
            _best(self.unanswerable.second, k),
            self.inputs.units,
            self.first.encoded,
            self.first.index,
            self.scale,
            self.off_topic,
            self.answerable.second,
        )

    @property
    def corpus(self) -> LabelledSearch:
        """The labelled queries, whose documents are known."""
        return self.queries

    @property
    def components(self) -> tuple[Components, Components]:
        """The scores of the first stage."""
        k = self.inputs.settings.k
        answerable, unanswerable = (
            {FIRST_SCORE: candidates.first_scores[:, :k]} for candidates in (self.answerable, self.unanswerable)
        )
        return answerable, unanswerable

    def random(self, part: QueryPart) -> Float32:
        """Score the random documents of a part of the queries, (q,) float32, by the second stage."""
        texts = [self.inputs.dataset.answerable[row].text for row in part.members.tolist()]
        positions = part.resamples.random_documents[:, None]
        scores = score_pairs(self.reranker, texts, positions, self.inputs.job, "ranking random documents")[:, 0]
        return combined(scores, self.first.random(part), self.first_stage_weight)

    def describe(self, parts: Parts) -> DescribedTexts:
        """Describe the texts by the first stage, whose scores do not depend on a reranker."""
        return self.first.describe(parts)

    def questions(self, parts: LabelledParts) -> RefusalQuestions | None:
        """See `Search.questions`."""
        return RefusalQuestions.of_corpus(self.queries, parts, self.inputs.settings.seed)


def score_pairs(
    reranker: Reranker,
    queries: Sequence[str],
    positions: NDArray[np.int64],
    job: Job,
    name: str,
    known: Float32 | None = None,
) -> Float32:
    """Score m queries with c documents each, (m, c) float32.

    Args:
        positions: (m, c) positions of the documents.
        known: (m, c) float32 scores that need not be computed, NaN for the others; None for all others.

    Raises:
        RerankerUnavailable: If there are no scores.
    """
    scores = np.full(positions.shape, np.nan, dtype=np.float32) if known is None else known.copy()

    def one(row: int) -> None:
        missing = np.flatnonzero(np.isnan(scores[row]))
        if len(missing):
            scores[row, missing] = reranker.score(queries[row], positions[row, missing])

    with job.task(name, len(queries)) as task, ThreadPoolExecutor(reranker.parallel) as pool:
        try:
            for _ in pool.map(one, range(len(queries))):
                task.advance()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return scores


def _correct_scores(first: CorpusSearch, reranker: Reranker, candidates: RerankedCandidates, weight: float) -> Float32:
    """Return S_corr, (n,) float32: the best score of a relevant candidate, else of the relevant passage most similar.

    Scoring all relevant passages would cost more than everything else if a query has hundreds of them.
    """
    dataset = first.inputs.dataset
    queries, parents = dataset.answerable, dataset.documents.parents
    relevant = grades_of(queries, candidates.first.positions, parents) >= 1
    correct: Float32 = np.where(relevant, candidates.scores, -np.inf).max(axis=1).astype(np.float32)
    missed = np.flatnonzero(~relevant.any(axis=1))
    passages = relevant_passages(queries, parents)
    nearest, similarities = np.zeros((len(missed), 1), dtype=np.int64), np.zeros(len(missed), dtype=np.float32)
    for place, row in enumerate(missed.tolist()):
        similar = first.index.score(first.encoded.answerable[[row]], passages[row][None])[0]
        nearest[place], similarities[place] = passages[row][int(similar.argmax())], similar.max()
    texts = [queries[row].text for row in missed.tolist()]
    scores = score_pairs(reranker, texts, nearest, first.inputs.job, "ranking missed answers")
    correct[missed] = combined(scores[:, 0], similarities, weight)
    return correct


def _best(top: TopK, k: int) -> TopK:
    return TopK(top.scores[:, :k], top.positions[:, :k])
