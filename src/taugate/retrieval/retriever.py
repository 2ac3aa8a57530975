"""The retriever: encode, search, cut. The path that calibration measures is the path that the service runs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter, both
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.encoder.encoder import Role, Tokens
from taugate.retrieval.index.grouping import DocumentSearch, Parents, first_of_each
from taugate.retrieval.index.passages import Found, LocalPassages, Observe, Passages, unobserved
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.policy.abstention import AnswerRule
from taugate.retrieval.policy.background import ReadDocuments
from taugate.retrieval.policy.policy import Mask, Policy, decision_scores, keep_answered
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.query import Answer, Query, Reason, Uncut
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.similarity import Float32


class Encoder(Protocol):
    """Encodes texts as unit vectors, in two steps."""

    def tokenize(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """Return the token ids of each text.

        Args:
            role: Whether these are queries or documents.
        """
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


@dataclass(frozen=True, slots=True)
class _SearchGroup:
    """Queries that are searched together: of the same depth, in the same documents.

    Attributes:
        rows: Their places in the batch.
        depth: How many passages to search for.
        scope: The filter to search within.
        documents: Of how many documents to find passages; None where results are not grouped.
    """

    rows: list[int]
    depth: int
    scope: Filter
    documents: int | None


@dataclass(frozen=True, slots=True)
class _Listed:
    """The passages listed for some queries of a batch.

    Attributes:
        rows: Their places in the batch.
        found: The passages, best first, a row for each query.
        policy: That cuts them.
    """

    rows: list[int]
    found: Found
    policy: Policy


@dataclass(frozen=True, slots=True)
class _Results:
    """One query's w results before the cut, best first.

    Attributes:
        positions: (w,) int64.
        scores: (w,) float32 similarities.
        decisions: (w,) float32, what the policy compares with τ.
        relevance: (w,) float32 or None.
        answered: (1,) bool, False where the query is to be refused; None where no query is.
    """

    positions: NDArray[np.int64]
    scores: Float32
    decisions: Float32
    relevance: Float32 | None
    answered: Mask | None

    def at(self, places: NDArray[np.int64]) -> Self:
        """Return some of the results, by their places in the list."""
        return replace(
            self,
            positions=self.positions[places],
            scores=self.scores[places],
            decisions=self.decisions[places],
            relevance=None if self.relevance is None else self.relevance[places],
        )


@dataclass(frozen=True, eq=False)
class Retriever:
    """An encoder, an index and a policy that were calibrated together.

    Attributes:
        encoder: Of queries.
        index: Of the documents' vectors.
        policy: The cut.
        relevance: Estimates the probability that a result is relevant; None where the release has no model.
        projection: Of vectors, before they are compared; None for none.
        metadata: Of the documents, for filters.
        abstention: The rule by which queries are refused; None where none is.
        parents: (N,) int32, as in DocumentStore.parents; None where every passage is a document.
        elsewhere: Searches passages that are in an engine; None where they are here, in index and metadata.
    """

    encoder: Encoder
    index: Index
    policy: Policy
    relevance: Relevance | None = None
    projection: Projection | None = None
    metadata: Metadata = field(default_factory=Metadata)
    abstention: AnswerRule | None = None
    parents: Parents | None = None
    elsewhere: Passages | None = None

    @cached_property
    def passages(self) -> Passages:
        """The passages that are searched."""
        return self.elsewhere or LocalPassages(self.index, self.metadata)

    def single_threaded(self) -> Self:
        """Return the same with an encoder on one thread, for callers who embed in several threads at once."""
        return replace(self, encoder=self.encoder.single_threaded())

    def search(self, queries: Sequence[Query], observe: Observe = unobserved) -> list[Answer]:
        """Answer queries together, in one pass through the encoder and one through the index.

        Args:
            queries: n of them.
            observe: See `embed` and `answer`.

        Raises:
            InputError: For a filter on a field that no document has.
        """
        tokens = self.tokens([query.text for query in queries])
        read = [query.as_read(each) for query, each in zip(queries, tokens, strict=True)]
        return self.answer(read, self.embed(tokens, observe), observe)

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the token ids of query texts."""
        return self.encoder.tokenize(texts, "query")

    def embed(self, tokens: Sequence[Tokens], observe: Observe = unobserved) -> Float32:
        """Encode queries as vectors that are compared with documents, (n, d') float32.

        Args:
            tokens: Of n queries.
            observe: Receives the stages "encode" and, where there is a projection, "project".
        """
        start = time.perf_counter()
        vectors = self.encoder.embed(tokens)
        encoded = time.perf_counter()
        observe("encode", encoded - start)
        if self.projection is not None:
            vectors = self.projection.apply(vectors)
            observe("project", time.perf_counter() - encoded)
        return vectors

    def vectors(self, texts: Sequence[str]) -> Float32:
        """Encode query texts as vectors that are compared with documents, (n, d') float32."""
        return self.embed(self.tokens(texts))

    def answer(self, queries: Sequence[Query], vectors: Float32, observe: Observe = unobserved) -> list[Answer]:
        """Answer queries whose vectors are known: search, then cut.

        Args:
            queries: n of them, as the encoder read them (`Query.as_read`).
            vectors: (n, d') float32.
            observe: Receives the stages "search", in which filters are looked up too, with those of an engine before
                it, and "filter", which is the cut.

        Raises:
            InputError: For a filter on a field that no document has, EngineUnavailable if an engine does not answer.
        """
        start = time.perf_counter()
        lists = [each for group in self._search_groups(queries) for each in self._search(vectors, group, observe)]
        searched = time.perf_counter()
        observe("search", searched - start)
        answers: dict[int, Answer] = {}
        for each in lists:
            members = [queries[row] for row in each.rows]
            answers |= zip(each.rows, self._cut(members, vectors[each.rows], each), strict=True)
        observe("filter", time.perf_counter() - searched)
        return [answers[row] for row in range(len(queries))]

    def depth(self, query: Query) -> int:
        """Return how many passages are searched for at least; the first `query.k`, or their documents, are considered.

        They are at least the K of the policy: what is relative to the best result or to the list is so whatever k is.
        """
        return max(self.policy.k, query.k)

    def groups(self, query: Query) -> bool:
        """Tell whether results are grouped by document, which makes no difference for one result, nor without chunks.

        Args:
            query: That is searched for.
        """
        return query.group_by is not None and self.parents is not None and query.k > 1

    def rescores(self, query: Query) -> bool:
        """Tell whether the list of an earlier search is of use: not where it grows with k, nor where it is elsewhere.

        To read the passages of a list from an engine takes as long as to search for them again.
        """
        return not self.groups(query) and not self.passages.remote

    def rescore(self, query: Query, vector: Float32, positions: NDArray[np.int64]) -> Answer:
        """Answer a query from the results of an earlier search; similarities are computed again.

        Args:
            query: That was searched before.
            vector: (d',) float32.
            positions: (w,) int64, all that was found, as in `Answer.found`.

        Raises:
            ValueError: Where no search finds these: too many or too few, one of them twice, outside the filter or out
                of order; and for a query of which `rescores` says that no list is kept.
        """
        if not self.rescores(query):
            raise ValueError("these results are searched for again")
        scope, documents = both(query.permitted, query.filter or ()), len(self.index)
        within = self.metadata.where(scope) if scope else None
        if ((positions < 0) | (positions >= documents)).any() or not (within is None or within[positions].all()):
            raise ValueError("documents that the search is not about")
        if len(positions) != min(self.depth(query), documents if within is None else np.count_nonzero(within)):
            raise ValueError("more documents, or fewer, than a search finds")
        scores = self.index.score(vector[None], positions[None])
        better, worse = scores[0, :-1], scores[0, 1:]
        ordered = (better > worse) | ((better == worse) & (positions[:-1] < positions[1:]))
        if not (np.isfinite(scores).all() and ordered.all()):  # nor can one be there twice
            raise ValueError("documents in another order than that of their similarity")
        listed = _Listed([0], Found(TopK(scores, positions[None])), self.policy.within(scope))
        (answer,) = self._cut([query], vector[None], listed)
        return answer

    def _search_groups(self, queries: Sequence[Query]) -> list[_SearchGroup]:
        """Put queries of the same depth and filter together, and of the same k where results are grouped.

        Each depth is searched by itself: in a longer list an approximate index finds more, which a query must not owe
        to its company.
        """
        rows_of: dict[tuple[int, Filter, Filter, int | None], list[int]] = {}
        for row, query in enumerate(queries):
            documents = query.k if self.groups(query) else None
            rows_of.setdefault((self.depth(query), query.permitted, query.filter or (), documents), []).append(row)
        return [
            _SearchGroup(rows, depth, both(permitted, wanted) if wanted else permitted, documents)
            for (depth, permitted, wanted, documents), rows in rows_of.items()
        ]

    def _search(self, vectors: Float32, group: _SearchGroup, observe: Observe) -> Iterator[_Listed]:
        """Search for the queries of a group.

        Args:
            vectors: Of the whole batch, (n, d') float32.
        """
        queries, policy = vectors[group.rows], self.policy.within(group.scope)
        if self.parents is None or group.documents is None:
            yield _Listed(group.rows, self.passages.find(queries, group.depth, group.scope, observe), policy)
            return
        # k documents reach further down the list of passages than the first K, which τ was calibrated on.
        policy = replace(policy, certified=False)
        within = DocumentSubset(self.metadata.where(group.scope)) if group.scope else None
        search = DocumentSearch(self.index, self.parents, within)
        for rows, top in search.search(queries, group.depth, group.documents):
            yield _Listed([group.rows[row] for row in rows.tolist()], Found(top), policy)

    def _cut(self, queries: Sequence[Query], vectors: Float32, listed: _Listed) -> Iterator[Answer]:
        """Cut the results of queries that were searched together.

        Everything is computed from the list of passages, as calibration does; grouping then takes some of them.
        """
        found, top, policy = listed.found, listed.found.top, listed.policy
        relevance = self.relevance.estimate(vectors, top, results=_contents(found)) if self.relevance else None
        decisions = decision_scores(policy.kind, top.scores, relevance)
        # How rare a word is, which a refusal may rest on, would tell whether any document has it.
        abstention = None if queries[0].permitted else self.abstention
        answered = abstention.answered([query.text for query in queries], vectors, top) if abstention else None
        k = policy.k
        passing = keep_answered(decisions[:, :k], policy.threshold, answered).sum(axis=1).tolist()
        for row, query in enumerate(queries):
            results = _Results(
                top.positions[row],
                top.scores[row],
                decisions[row],
                None if relevance is None else relevance[row],
                _answered(query, None if answered is None else answered[row : row + 1]),
            )
            uncut = Uncut(results.scores[:k], passing[row]) if query.is_comparable else None
            if self.parents is not None and self.groups(query):
                results = results.at(first_of_each(self.parents, results.positions))
            yield self._cut_one(query, results, policy, uncut, found)

    def _cut_one(self, query: Query, results: _Results, policy: Policy, uncut: Uncut | None, found: Found) -> Answer:
        """Keep what passes of the first k; where that is too few, fill up with the best of the rest."""
        overridden = query.threshold is not None
        threshold = np.float32(query.threshold) if overridden else policy.threshold
        answered = None if overridden else results.answered
        passing = keep_answered(results.decisions[None, : query.k], threshold, answered)[0]
        chosen = np.flatnonzero(passing)
        if query.min_results > len(chosen):
            others = np.flatnonzero(~passing)[: query.min_results - len(chosen)]
            chosen = np.sort(np.concatenate([chosen, others]))
        refused = answered is not None and not answered.any()
        chosen, propensities = _explore(query, results, chosen, len(passing), refused=refused)
        below_threshold = ~passing[chosen]
        # Within a filter, refusals are not certified. Nothing is of a query that was not read whole.
        certified = self.abstention is None or not (query.filter or query.permitted)
        certified = certified and not (query.truncated or query.unreadable)
        return Answer(
            positions=results.positions[chosen],
            scores=results.scores[chosen],
            ranks=chosen + 1,
            relevance=None if results.relevance is None else results.relevance[chosen],
            below_threshold=below_threshold,
            propensities=propensities,
            considered=len(passing),
            best_score=float(results.scores[0]) if len(passing) else None,
            threshold=None if threshold is None else float(threshold),
            policy=policy.kind,
            calibrated=not overridden and certified and policy.covers(query.k) and not below_threshold.any(),
            reason=_reason(query, len(passing), len(chosen), refused),
            refused=refused,
            uncut=uncut,
            found=None if self.groups(query) else results.positions,
            truncated=query.truncated,
            approximate=found.approximate,
            documents={
                position: found.candidates[position].document
                for position in results.positions[chosen].tolist()
                if position in found.candidates
            },
        )


def _contents(found: Found) -> ReadDocuments | None:
    """Return the contents of the results, (n, w), where the search brought them."""
    positions = found.top.positions
    if not positions.size or not found.candidates:
        return None
    candidates = [found.candidates[position] for position in positions.ravel().tolist()]
    read = ReadDocuments.of(np.stack([each.vector for each in candidates]), [each.document for each in candidates])
    return ReadDocuments(read.vectors.reshape(*positions.shape, -1), read.lengths.reshape(positions.shape))


def _explore(
    query: Query, results: _Results, chosen: NDArray[np.int64], considered: int, *, refused: bool
) -> tuple[NDArray[np.int64], Float32]:
    """Add the dropped results that exploration shows; returns the places of all, and their propensities.

    Args:
        chosen: (n,) int64 places of the results that are kept.
        considered: How many results the cut was made of.
        refused: Whether the query is refused as a whole, where nothing is explored.
    """
    if query.exploration is None or refused:
        return chosen, np.ones(len(chosen), dtype=np.float32)
    dropped = np.setdiff1d(np.arange(considered), chosen)
    explored = dropped[query.exploration.draw(query.text, results.positions[dropped])]
    together = np.concatenate([chosen, explored])
    propensities = np.repeat(np.array([1, query.exploration.share], np.float32), [len(chosen), len(explored)])
    order = np.argsort(together)
    return together[order], propensities[order]


def _answered(query: Query, answered: Mask | None) -> Mask | None:
    """Return whether a query is answered, as _Results has it.

    Args:
        answered: What the rule of abstention says.
    """
    return np.zeros(1, dtype=np.bool_) if query.unreadable else answered


def _reason(query: Query, considered: int, kept: int, refused: bool) -> Reason | None:
    """Return why nothing is kept; an index of documents returns no result only where the filter leaves none."""
    if kept:
        return None
    if not considered:
        return "no_documents_match_filter"
    if refused:
        return "unreadable" if query.unreadable else "unanswerable"
    return "all_below_threshold"
