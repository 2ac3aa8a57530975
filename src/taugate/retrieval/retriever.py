"""The retriever encodes, searches and cuts. Calibration measures the same code path that the service runs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.cut import Setting, UncutResults, cut, cut_documents
from taugate.retrieval.documents.filters import both
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.encoder.encoder import Role, Tokens
from taugate.retrieval.index.grouping import DocumentSearch, Parents
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.passages import FoundPassages, LocalPassages, Observe, Passages, unobserved
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.index.words import hybrid_vectors
from taugate.retrieval.lists import Listed, SearchGroup, contents_of, search_groups
from taugate.retrieval.policy.abstention import AnswerRule, needs_words
from taugate.retrieval.policy.policy import Policy
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.query import Answer, Query, Skipped
from taugate.retrieval.rerank.stage import FIRST_SCORE, Ranked, SecondStage, SecondStageRule
from taugate.retrieval.score_parts import score_parts
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.queries import QueryVectors
from taugate.retrieval.vectors.similarity import Float32


class Encoder(Protocol):
    """Encodes texts as unit vectors in two steps: tokenize, then embed."""

    def tokenize(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """Return the token ids of texts of a role, queries or documents."""
        ...

    @property
    def packed(self) -> bool:
        """True if texts of several lengths share a batch without padding."""
        ...

    def padded(self, length: int) -> int:
        """Return the number of tokens at which a text of `length` tokens is encoded."""
        ...

    def embed(self, tokens: Sequence[Tokens]) -> Float32:
        """Return unit vectors, (n, d) float32, in the order of `tokens`."""
        ...

    def single_threaded(self) -> Self:
        """Return the same encoder on one thread."""
        ...


@dataclass(frozen=True, eq=False)
class Retriever:
    """An encoder, an index and a policy that were calibrated together.

    Attributes:
        encoder: Encodes queries.
        index: Index of the documents' vectors.
        policy: The cut.
        relevance: Estimates the probability that a result is relevant; None if the release has no model.
        projection: Applied to vectors before they are compared; None if there is none.
        metadata: Metadata of the documents, for filters.
        abstention: Rule that refuses queries; None if none is refused.
        parents: (N,) int32 as in DocumentStore.parents; None if every passage is a document.
        remote_passages: Searches passages in an engine; None if they are in this process, in `index` and `metadata`.
        second: Reranks the first stage's candidates, and has a policy, a relevance model and a rule that refuses
            queries of its own. None with one stage, which the other attributes describe.
        of_vectors: Whether the queries of the calibration were vectors.
        other_encoder: Whether the encoder is not the calibrated one, but another of the release.
    """

    encoder: Encoder
    index: Index
    policy: Policy
    relevance: Relevance | None = None
    projection: Projection | None = None
    metadata: Metadata = field(default_factory=Metadata)
    abstention: AnswerRule | None = None
    parents: Parents | None = None
    remote_passages: Passages | None = None
    second: SecondStage | None = None
    of_vectors: bool = False
    other_encoder: bool = False

    @cached_property
    def passages(self) -> Passages:
        """The passages that are searched."""
        return self.remote_passages or LocalPassages(self.index, self.metadata)

    @property
    def needs_words(self) -> bool:
        """True if the texts of queries are needed although they come with vectors."""
        refuses_by_words = self.abstention is not None and needs_words(self.abstention.score.name)
        return isinstance(self.index, HybridIndex) or refuses_by_words

    def single_threaded(self) -> Self:
        """Return a copy whose encoder uses one thread, for callers that embed in several threads at once."""
        return replace(self, encoder=self.encoder.single_threaded())

    def search(self, queries: Sequence[Query], observe: Observe = unobserved) -> list[Answer]:
        """Answer queries together, in one pass through the encoder and one through the index.

        Args:
            queries: n queries.
            observe: See `embed` and `answer`.

        Raises:
            InputError: If a filter names a field that no document has.
        """
        return self.answer(*self.read(queries, observe), observe)

    def read(self, queries: Sequence[Query], observe: Observe = unobserved) -> tuple[list[Query], Float32]:
        """Return queries as the encoder reads them, and their vectors, (n, d') float32.

        Args:
            queries: n queries.
            observe: See `embed`.

        Raises:
            NoEncoder: If a query has no vector, and the release no encoder.
        """
        read, texts = [*queries], [row for row, query in enumerate(queries) if query.vector is None]
        tokens = self.tokens([queries[row].text for row in texts])
        encoded = dict(zip(texts, self.embed(tokens, observe), strict=True))
        for row, text_tokens in zip(texts, tokens, strict=True):
            read[row] = queries[row].as_read(text_tokens)
        vectors = [
            encoded[row] if query.vector is None else self.own_vector(query.vector) for row, query in enumerate(read)
        ]
        return read, np.stack(vectors)

    def own_vector(self, vector: bytes) -> Float32:
        """Return the vector of a query that came with one, as it is compared with documents, (d',) float32."""
        own: Float32 = np.frombuffer(vector, dtype=np.float32)
        return own if self.projection is None else self.projection.apply(own[None])[0]

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the token ids of query texts."""
        return self.encoder.tokenize(texts, "query")

    def embed(self, tokens: Sequence[Tokens], observe: Observe = unobserved) -> Float32:
        """Encode queries as vectors that are compared with documents, (n, d') float32.

        Args:
            tokens: Tokens of n queries.
            observe: Receives the stages "encode" and, with a projection, "project".
        """
        start = time.perf_counter()
        vectors = self.encoder.embed(tokens)
        encoded = time.perf_counter()
        observe("encode", start, encoded)
        if self.projection is not None:
            vectors = self.projection.apply(vectors)
            observe("project", encoded, time.perf_counter())
        return vectors

    def vectors(self, texts: Sequence[str]) -> Float32:
        """Encode query texts as vectors that are compared with documents, (n, d') float32."""
        return self.embed(self.tokens(texts))

    def encode(self, texts: Sequence[str]) -> QueryVectors:
        """Encode query texts as the index compares them with documents."""
        return self.with_words(texts, self.vectors(texts))

    def with_words(self, texts: Sequence[str], vectors: Float32) -> QueryVectors:
        """Add the words of queries to their vectors if the score has a lexical part.

        Args:
            texts: Texts of n queries.
            vectors: (n, d') float32.
        """
        if not isinstance(self.index, HybridIndex):
            return vectors
        return hybrid_vectors(vectors, texts, self.index.lexical.statistics.rule)

    def answer(
        self,
        queries: Sequence[Query],
        vectors: Float32,
        observe: Observe = unobserved,
        deadlines: Sequence[float | None] | None = None,
    ) -> list[Answer]:
        """Answer queries from their vectors: search, rerank if there is a second stage, then cut.

        Args:
            queries: n queries, marked by `Query.as_read`.
            vectors: (n, d') float32.
            observe: Receives the stages of an engine, then "search", which includes filters, "rerank" with a second
                stage, and "filter", which is the cut.
            deadlines: Time of `time.monotonic` after which each query has the first stage's results; None waits.

        Raises:
            InputError: If a filter names a field that no document has.
            EngineUnavailable: If an engine does not answer.
        """
        if self.second is None:
            return self._answer_once(queries, vectors, observe)
        limits = deadlines or [None] * len(queries)
        answers: list[Answer | Skipped | None] = [
            self.second.skips(query.text, limit) for query, limit in zip(queries, limits, strict=True)
        ]
        rows = [row for row, skips in enumerate(answers) if skips is None]
        if rows:
            members, deadlines = [queries[row] for row in rows], [limits[row] for row in rows]
            twice = self._answer_twice(self.second, members, vectors[rows], observe, deadlines)
            for row, answer_twice in zip(rows, twice, strict=True):
                answers[row] = answer_twice
        skipped = {row: answer for row, answer in enumerate(answers) if isinstance(answer, str)}
        if skipped:
            rows = [*skipped]
            # A threshold of the request is meant for the second stage's scores.
            again = [replace(queries[row], threshold=None) for row in rows]
            first = self._answer_once(again, vectors[rows], observe)
            for row, answer in zip(rows, first, strict=True):
                answers[row] = replace(answer, stage="first", skipped=skipped[row], retrieved=None)
        return [answer for answer in answers if isinstance(answer, Answer)]

    def _answer_once(self, queries: Sequence[Query], vectors: Float32, observe: Observe) -> list[Answer]:
        """Answer queries by the first stage alone; see `answer`."""
        start = time.perf_counter()
        compared = self.with_words([query.text for query in queries], vectors)
        groups = search_groups(queries, self.policy.k, self.policy, self.abstention, self.groups)
        lists = [listed for group in groups for listed in self._search(compared, group, observe)]
        searched = time.perf_counter()
        observe("search", start, searched)
        answers: dict[int, Answer] = {}
        for listed in lists:
            members = [queries[row] for row in listed.rows]
            answers |= zip(listed.rows, self._cut_first(members, vectors[listed.rows], listed), strict=True)
        observe("filter", searched, time.perf_counter())
        return [answers[row] for row in range(len(queries))]

    def _answer_twice(
        self,
        second: SecondStage,
        queries: Sequence[Query],
        vectors: Float32,
        observe: Observe,
        deadlines: Sequence[float | None],
    ) -> list[Answer | Skipped]:
        """Answer queries by the second stage; returns why, for a query that it does not answer."""
        start = time.perf_counter()
        compared = self.with_words([query.text for query in queries], vectors)
        rule = second.rule
        groups = search_groups(queries, rule.candidates, rule.policy, rule.abstention, self.groups)
        lists = [listed for group in groups for listed in self._search(compared, group, observe)]
        searched = time.perf_counter()
        observe("search", start, searched)
        ranked: list[tuple[Listed, list[Ranked]]] = []
        answers: dict[int, Answer | Skipped] = {}
        for listed in lists:
            texts, limits = [queries[row].text for row in listed.rows], [deadlines[row] for row in listed.rows]
            outcomes = second.rank(texts, listed.result, limits)
            answers |= {
                row: outcome for row, outcome in zip(listed.rows, outcomes, strict=True) if isinstance(outcome, str)
            }
            rows = [row for row in listed.rows if row not in answers]
            ranked.append(
                (replace(listed, rows=rows), [outcome for outcome in outcomes if isinstance(outcome, Ranked)])
            )
        scored = time.perf_counter()
        observe("rerank", searched, scored)
        for listed, rankings in ranked:
            if rankings:
                members = [queries[row] for row in listed.rows]
                cut = self._cut_second(rule, members, vectors[listed.rows], listed, rankings)
                answers |= zip(listed.rows, cut, strict=True)
        observe("filter", scored, time.perf_counter())
        return [answers[row] for row in range(len(queries))]

    def depth(self, query: Query) -> int:
        """Return how many passages to search for; the first `query.k`, or their documents, are considered.

        This is at least the K of the policy, so that scores relative to the best result or the list do not depend on k.
        """
        return max(self.policy.k, query.k)

    def groups(self, query: Query) -> bool:
        """Return whether results are grouped by document; with one result or no chunks, grouping changes nothing."""
        return query.group_by is not None and self.parents is not None and query.k > 1

    def rescores(self, query: Query) -> bool:
        """Return whether the list of an earlier search can be reused.

        It cannot if results are grouped, because the list grows with k, if passages are in an engine, because reading
        them takes as long as searching again, or if there is a second stage, whose scores take most of the time.
        """
        return not self.groups(query) and not self.passages.remote and self.second is None

    def rescore(self, query: Query, vector: Float32, positions: NDArray[np.int64]) -> Answer:
        """Answer a query from the results of an earlier search, computing similarities again.

        Args:
            query: The earlier query.
            vector: (d',) float32.
            positions: (w,) int64 positions of all results, as in `Answer.retrieved`.

        Raises:
            ValueError: If no search can return these positions (too many or too few, a duplicate, outside the filter or
                out of order), or if `rescores` is false for the query.
        """
        if not self.rescores(query):
            raise ValueError("results of this query cannot be reused; search again")
        scope, documents = both(query.permitted, query.filter or ()), len(self.index)
        within = self.metadata.where(scope) if scope else None
        if ((positions < 0) | (positions >= documents)).any() or not (within is None or within[positions].all()):
            raise ValueError("positions outside the index or the filter")
        if len(positions) != min(self.depth(query), documents if within is None else np.count_nonzero(within)):
            raise ValueError("the number of documents is not that of a search")
        scores = self.index.score(self.with_words([query.text], vector[None]), positions[None])
        better, worse = scores[0, :-1], scores[0, 1:]
        ordered = (better > worse) | ((better == worse) & (positions[:-1] < positions[1:]))
        if not (np.isfinite(scores).all() and ordered.all()):  # this also rules out duplicates
            raise ValueError("documents are not ordered by similarity")
        listed = Listed([0], FoundPassages(TopK(scores, positions[None])), self.policy.within(scope), self.abstention)
        (answer,) = self._cut_first([query], vector[None], listed)
        return answer

    def _search(self, compared: QueryVectors, group: SearchGroup, observe: Observe) -> Iterator[Listed]:
        """Search for the queries of a group, given those of the whole batch."""
        queries, policy, rule = compared[group.rows], group.policy.within(group.scope), group.rule
        if self.parents is None or group.documents is None:
            found = self.passages.find(queries, group.depth, group.scope, observe)
            yield Listed(group.rows, found, policy, rule)
            return
        # k documents reach further down the list of passages than the first K, which τ was calibrated on.
        policy = replace(policy, certified=False)
        within = DocumentSubset(self.metadata.where(group.scope)) if group.scope else None
        search = DocumentSearch(self.index, self.parents, within)
        for rows, top in search.search(queries, group.depth, group.documents):
            yield Listed([group.rows[row] for row in rows.tolist()], FoundPassages(top), policy, rule)

    def _cut_first(self, queries: Sequence[Query], vectors: Float32, listed: Listed) -> Iterator[Answer]:
        """Cut the results of queries that were searched together, by the first stage's scores."""
        top = listed.result.top
        relevance = (
            self.relevance.estimate(vectors, top, results=contents_of(listed.result)) if self.relevance else None
        )
        answers = self._cut(queries, vectors, listed, relevance, fallback=self.second is not None)
        for query, vector, answer in zip(queries, vectors, answers, strict=True):
            yield self._with_parts(query, vector, answer, answer.scores)

    def _cut_second(
        self,
        rule: SecondStageRule,
        queries: Sequence[Query],
        vectors: Float32,
        listed: Listed,
        rankings: Sequence[Ranked],
    ) -> Iterator[Answer]:
        """Cut the candidates of queries that were searched together, by the second stage's scores."""
        positions, scores, first = (
            np.stack([getattr(ranking, name) for ranking in rankings])
            for name in ("positions", "scores", "first_scores")
        )
        found = replace(listed.result, top=TopK(scores, positions))
        relevance = None
        if rule.relevance is not None:  # without candidates, as if a filter matches nothing, there are no scores
            relevance = rule.relevance.estimate(scores, {FIRST_SCORE: first}) if scores.size else scores
        answers = self._cut(queries, vectors, replace(listed, result=found), relevance, fallback=False)
        for query, vector, ranking, answer in zip(queries, vectors, rankings, answers, strict=True):
            first_scores = ranking.first_scores_at(answer.positions)
            # With more candidates, the first K are others than those of the calibration.
            uncut = answer.uncut if len(ranking.positions) <= rule.candidates else None
            ended = replace(answer, stage="second", first_scores=first_scores, uncut=uncut, retrieved=None)
            yield self._with_parts(query, vector, ended, first_scores)

    def _with_parts(self, query: Query, vector: Float32, answer: Answer, scores: Float32) -> Answer:
        """Add the parts of the first stage's scores to an answer if the query asks for them."""
        if not query.with_parts:
            return answer
        return replace(answer, parts=score_parts(self.index, query.text, vector, answer.positions, scores))

    def _cut(
        self, queries: Sequence[Query], vectors: Float32, listed: Listed, relevance: Float32 | None, *, fallback: bool
    ) -> Iterator[Answer]:
        """Cut the results of queries that were searched together; `fallback` if the second of two stages did not rank.

        Everything is computed from the ungrouped list of passages, as in calibration; grouping then selects from it.
        """
        top, policy, abstention = listed.result.top, listed.policy, listed.rule
        # A refusal may depend on how rare a word is, which would reveal whether a hidden document contains it.
        decides = abstention
        if abstention is not None and queries[0].permitted and not abstention.within_filters:
            decides = None
        refusals = decides.decide([query.text for query in queries], vectors, top) if decides else None
        results = UncutResults.of(top, policy, relevance, refusals)
        setting = Setting(self.of_vectors, self.other_encoder, fallback, self.groups(queries[0]))
        if self.parents is not None and setting.grouped:
            return cut_documents(queries, results, listed, self.parents, setting)
        return cut(queries, results, policy, listed.result, abstention, setting)
