"""The retriever encodes, searches and cuts. Calibration measures the same code path that the service runs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from taugate.policy.abstention import AnswerRule, needs_words
from taugate.policy.arrays import Float32, QueryVectors
from taugate.policy.policy import Policy
from taugate.policy.relevance import ReadDocuments, Relevance
from taugate.retrieval.cut import cut
from taugate.retrieval.documents.filters import Filter, both, only_value
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.encoder.encoder import Encoder, Tokens
from taugate.retrieval.index.grouping import DocumentSearch
from taugate.retrieval.index.hybrid import HybridIndex, words_of
from taugate.retrieval.index.top_k import DocumentSubset, Index, Observe, Parents, Passages, TopK, unobserved
from taugate.retrieval.index.words import hybrid_vectors
from taugate.retrieval.query import Answer, NotComparable, Query, Skipped, score_parts
from taugate.retrieval.rerank.stage import FIRST_SCORE, SecondStage
from taugate.retrieval.vectors import Projection


@dataclass(frozen=True)
class LocalPassages:
    """Passages in this process; filters are evaluated on their metadata, and filtered searches are exact."""

    index: Index
    metadata: Metadata
    remote: bool = False

    def find(self, queries: QueryVectors, k: int, query_filter: Filter, observe: Observe = unobserved) -> TopK:
        """See Passages.find."""
        if not query_filter:
            return self.index.search(queries, k)
        return self.index.search_within(queries, k, DocumentSubset(self.metadata.where(query_filter)))

    def meets(self, query_filter: Filter, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See Passages.meets."""
        return self.metadata.where(query_filter)[positions] if query_filter else np.ones(len(positions), dtype=np.bool_)

    def check(self, query_filter: Filter) -> None:
        """See Fields.check."""
        self.metadata.check(query_filter)

    def check_kinds(self, query_filter: Filter) -> None:
        """See Fields.check_kinds."""
        self.metadata.check_kinds(query_filter)


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

    @cached_property
    def words(self) -> HybridIndex | None:
        """The index if its scores have a lexical part; None if they do not."""
        return words_of(self.index)

    @cached_property
    def needs_words(self) -> bool:
        """True if the texts of queries are needed although they come with vectors."""
        refuses_by_words = self.abstention is not None and needs_words(self.abstention.score.name)
        return self.words is not None or refuses_by_words

    def single_threaded(self) -> Self:
        """Return a copy whose encoder uses one thread, for callers that embed in several threads at once."""
        return replace(self, encoder=self.encoder.single_threaded())

    def search(self, queries: Sequence[Query], observe: Observe = unobserved) -> list[Answer]:
        """Answer queries together, in one pass through the encoder and one through the index.

        Raises:
            InputError: If a filter names a field that no document has.
        """
        return self.answer(*self.read(queries, observe), observe)

    def read(self, queries: Sequence[Query], observe: Observe = unobserved) -> tuple[list[Query], Float32]:
        """Return queries as the encoder reads them, and their vectors, (n, d') float32.

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
        sent: Float32 = np.frombuffer(vector, dtype=np.float32)
        return sent if self.projection is None else self.projection.apply(sent[None])[0]

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the token ids of query texts."""
        return self.encoder.tokenize(texts, "query")

    def embed(self, tokens: Sequence[Tokens], observe: Observe = unobserved) -> Float32:
        """Encode queries as vectors that are compared with documents, (n, d') float32.

        Args:
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
            vectors: (n, d') float32.
        """
        return vectors if self.words is None else hybrid_vectors(vectors, texts, self.words.lexical.statistics.rule)

    def answer(
        self,
        queries: Sequence[Query],
        vectors: Float32,
        observe: Observe = unobserved,
        deadlines: Sequence[float | None] | None = None,
        compared: QueryVectors | None = None,
    ) -> list[Answer]:
        """Answer queries from their vectors: search, rerank if there is a second stage, then cut.

        Args:
            queries: n queries, marked by `Query.as_read`.
            vectors: (n, d') float32.
            observe: Receives the stages of an engine, then "search", which includes filters, "rerank" with a second
                stage, and "filter", which is the cut.
            deadlines: Time of `time.monotonic` after which each query has the first stage's results; None waits.
            compared: Result of `with_words`; None if it is not known yet.

        Raises:
            InputError: If a filter names a field that no document has.
            EngineUnavailable: If an engine does not answer.
        """
        limits = deadlines or [None] * len(queries)
        if compared is None:
            compared = self.with_words([query.text for query in queries], vectors)
        answers: dict[int, Answer] = {}
        skipped: dict[int, Skipped] = {}
        for second in (None,) if self.second is None else (self.second, None):
            if second is not None:
                reasons = (second.skips(query.text, limit) for query, limit in zip(queries, limits, strict=True))
                skipped = {row: reason for row, reason in enumerate(reasons) if reason is not None}
            rows = [row for row in range(len(queries)) if row not in (answers if second is None else skipped)]
            if not rows:
                continue
            began = time.perf_counter()
            depth = self.policy.k if second is None else second.rule.candidates
            lists = [*self._search(queries, rows, compared, depth, observe)]
            ended = time.perf_counter()
            observe("search", began, ended)
            if second is not None:
                lists = [*_ranked(second, queries, lists, limits, skipped)]
                began, ended = ended, time.perf_counter()
                observe("rerank", began, ended)
            for listed in lists:
                members = [queries[row] for row in listed.rows]
                answers |= zip(listed.rows, self._cut(second, members, vectors[listed.rows], listed), strict=True)
            observe("filter", ended, time.perf_counter())
        for row, reason in skipped.items():
            answers[row] = replace(answers[row], stage="first", skipped=reason, retrieved=None)
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
        (answer,) = self._cut(None, [query], vector[None], _Listed([0], TopK(scores, positions[None])))
        return answer

    def _search(
        self, queries: Sequence[Query], rows: Sequence[int], compared: QueryVectors, depth: int, observe: Observe
    ) -> Iterator["_Listed"]:
        """Search for some queries of a batch, those of the same depth and filter together."""
        # Each depth is searched separately: an approximate index finds more in a longer list, and a query's results
        # must not depend on the other queries of the batch. The same goes for k if results are grouped by document.
        groups: dict[tuple[int, Filter, Filter, int | None], list[int]] = {}
        for row in rows:
            query = queries[row]
            documents = query.k if self.groups(query) else None
            key = max(depth, query.k), query.permitted, query.filter or (), documents
            groups.setdefault(key, []).append(row)
        for (deep, permitted, query_filter, documents), members in groups.items():
            scope = both(permitted, query_filter)
            if self.parents is None or documents is None:
                yield _Listed(members, self.passages.find(compared[members], deep, scope, observe))
                continue
            within = DocumentSubset(self.metadata.where(scope)) if scope else None
            search = DocumentSearch(self.index, self.parents, within)
            for places, top in search.search(compared[members], deep, documents):
                yield _Listed([members[place] for place in places.tolist()], top)

    def _cut(
        self, second: SecondStage | None, queries: Sequence[Query], vectors: Float32, listed: "_Listed"
    ) -> Iterator[Answer]:
        """Cut the results of queries that were searched together, by the scores of the second stage, if it ranked them.

        Everything is computed from the ungrouped list of passages, as in calibration; grouping then selects from it.
        """
        stage, top, first = self if second is None else second.rule, listed.top, listed.first_scores
        scope, grouped = both(queries[0].permitted, queries[0].filter or ()), self.groups(queries[0])
        policy, rule = stage.policy, stage.abstention
        if scope:
            policy = policy.within(*only_value(scope))
        # Some refusals are not certified within a filter, and k documents reach further down the list of passages than
        # the first K, which τ was calibrated on.
        unfit = scope and rule is not None and not rule.within_filters
        if grouped or unfit:
            policy = replace(policy, certified=False)
        # A refusal may depend on how rare a word is, which would reveal whether a hidden document contains it.
        refuses = rule is not None and not (unfit and queries[0].permitted)
        refusals = rule.decide([query.text for query in queries], vectors, top) if rule and refuses else None
        relevance = None
        if second is None or first is None:
            # A threshold of the request is meant for the second stage's scores.
            queries = queries if self.second is None else [replace(query, threshold=None) for query in queries]
            if self.relevance is not None:
                relevance = self.relevance.estimate(vectors, top, results=_contents(top))
        elif second.rule.relevance is not None:  # without candidates, as if a filter matches nothing, no scores
            scores = top.scores
            relevance = second.rule.relevance.estimate(scores, {FIRST_SCORE: first}) if scores.size else scores
        departures = partial(self._departures, k=policy.k, fallback=second is None and self.second is not None)
        parents = self.parents if grouped else None
        for row, answer in enumerate(cut(queries, top, policy, relevance, refusals, departures, parents=parents)):
            ended, scores = answer, answer.scores
            if second is not None and first is not None:
                places = [top.positions[row].tolist().index(position) for position in answer.positions.tolist()]
                scores = first[row, places]
                # With more candidates, the first K are others than those of the calibration.
                uncut = answer.uncut if top.positions.shape[1] <= second.rule.candidates else None
                ended = replace(answer, stage="second", first_scores=scores, uncut=uncut, retrieved=None)
            if queries[row].with_parts:
                parts = score_parts(self.words, queries[row].text, vectors[row], answer.positions, scores)
                ended = replace(ended, parts=parts)
            yield ended

    def _departures(self, query: Query, *, k: int, fallback: bool) -> list[NotComparable]:
        """Return why results are not comparable with those of the calibration, the reason to give first.

        Args:
            fallback: Whether the first of two stages answers alone.
        """
        applies = {
            NotComparable.UNREADABLE: query.unreadable,
            NotComparable.TRUNCATED: query.truncated,
            NotComparable.FILTERED: query.filter or query.permitted,
            NotComparable.VECTOR: query.vector is not None and not self.of_vectors,
            NotComparable.PRECISION: query.vector is None and self.other_encoder,
            NotComparable.FALLBACK: fallback,
            NotComparable.THRESHOLD: query.threshold is not None,
            NotComparable.K: query.k != k,
            NotComparable.GROUPED: self.groups(query),
        }
        return [reason for reason, holds in applies.items() if holds]


class _Listed(NamedTuple):
    """The passages listed for queries that were searched together."""

    rows: list[int]  # positions of the queries in the batch
    top: TopK  # the passages, best first
    # (n, c) float32 scores of the first stage; None unless the second stage ranked the passages
    first_scores: Float32 | None = None


def _ranked(
    second: SecondStage,
    queries: Sequence[Query],
    lists: Sequence[_Listed],
    limits: Sequence[float | None],
    skipped: dict[int, Skipped],
) -> Iterator[_Listed]:
    """Yield lists in the order of the second stage; adds the queries that it does not rank to those skipped."""
    for rows, top, _ in lists:
        texts, deadlines = [queries[row].text for row in rows], [limits[row] for row in rows]
        ranked, reasons = second.rank(texts, top, deadlines)
        skipped |= {rows[place]: reason for place, reason in reasons.items()}
        if ranked:
            positions, scores, first = (np.stack(arrays) for arrays in zip(*ranked.values(), strict=True))
            yield _Listed([rows[place] for place in ranked], replace(top, scores=scores, positions=positions), first)


def _contents(top: TopK) -> ReadDocuments | None:
    """Return the contents of the results, (n, w), if the search returned them."""
    positions = top.positions
    if not positions.size or not top.candidates:
        return None
    candidates = [top.candidates[position] for position in positions.ravel().tolist()]
    vectors = np.stack([candidate.vector for candidate in candidates])
    read = ReadDocuments.of(vectors, [candidate.document.encoded_text for candidate in candidates])
    return ReadDocuments(read.vectors.reshape(*positions.shape, -1), read.lengths.reshape(positions.shape))
