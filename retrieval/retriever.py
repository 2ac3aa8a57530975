"""From query texts to kept results: encode, search, cut. The path that calibration measures and the service runs."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter, both
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.encoder.encoder import Role, Tokens
from taugate.retrieval.index.top_k import Index, TopK, Within
from taugate.retrieval.policy.abstention import AnswerRule
from taugate.retrieval.policy.policy import Mask, Policy, PolicyKind, decision_scores, keep_answered
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.similarity import Float32

Reason = Literal["all_below_threshold", "no_documents_match_filter", "unanswerable"]
Observe = Callable[[str, float], None]


class Encoder(Protocol):
    """Texts to unit vectors, float32 (n, d), in two steps."""

    def tokenize(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """What is encoded of each text."""
        ...

    def padded(self, length: int) -> int:
        """How many tokens are encoded of a text of so many."""
        ...

    def embed(self, tokens: Sequence[Tokens]) -> Float32:
        """Unit vectors in the order of `tokens`."""
        ...

    def single_threaded(self) -> Self:
        """The same on one thread."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """One search.

    threshold: overrides τ, and answers what would be refused; min_results: so many are returned even where they score
    below it, or the query is refused; filter: the documents searched, all where it is None or has no condition;
    permitted: those that whoever asks may see, within which the filter holds. No query is refused as a whole there: the
    words of all documents have a say in that.
    """

    text: str
    k: int
    threshold: float | None = None
    min_results: int = 0
    filter: Filter | None = None
    permitted: Filter = ()


@dataclass(frozen=True, slots=True)
class Uncut:
    """What drift is watched by, whatever was asked for.

    scores: similarities of the first K, (K,) float32, K that of the policy; kept: how many of them it keeps, none where
    the query is refused.
    """

    scores: Float32
    kept: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What is kept of one query's top-K, best first, and why nothing else is.

    positions, scores: (kept,) document positions and float32 similarities; ranks: (kept,) their places in the uncut
    list, from 1, which a cut by probability does not always keep from the top down; relevance: (kept,) float32
    probability that each is relevant, None where the release has no model of it; considered: how many the index
    returned; best_score: the highest similarity, kept or not; calibrated: whether a calibrated threshold, with the
    evidence for it, was in force, which within a filter it is in a certified stratum alone: other documents are in the
    top-K then than those that it was measured on; uncut: None for the same reason within a filter; found: (w,)
    positions of all that was found, of which this is the cut.
    """

    positions: NDArray[np.int64]
    scores: Float32
    ranks: NDArray[np.int64]
    relevance: Float32 | None
    considered: int
    best_score: float | None
    threshold: float | None
    policy: PolicyKind
    calibrated: bool
    reason: Reason | None
    uncut: Uncut | None
    found: NDArray[np.int64]


def _no_observer(stage: str, seconds: float) -> None:
    """Stage times go nowhere unless somebody asks for them."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A query's results before anything is dropped, (w,) each; answered: (1,) whether it is not to be refused."""

    positions: NDArray[np.int64]
    scores: Float32
    decisions: Float32
    relevance: Float32 | None
    answered: Mask | None


@dataclass(frozen=True, eq=False)
class Retriever:
    """An encoder, an index and a policy that were calibrated together; abstention: which queries get no result."""

    encoder: Encoder
    index: Index
    policy: Policy
    relevance: Relevance | None = None
    projection: Projection | None = None
    metadata: Metadata = field(default_factory=Metadata)
    abstention: AnswerRule | None = None

    def single_threaded(self) -> Self:
        """The same with an encoder on one thread, for callers who embed in several threads at once."""
        return replace(self, encoder=self.encoder.single_threaded())

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """What is encoded of each query."""
        return self.encoder.tokenize(texts, "query")

    def embed(self, tokens: Sequence[Tokens], observe: Observe = _no_observer) -> Float32:
        """Queries as they are compared with documents, (n, d') float32.

        `observe` is told the seconds of each stage as it ends: "encode", and "project" where there is a projection.
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
        """Query texts as they are compared with documents, (n, d') float32."""
        return self.embed(self.tokens(texts))

    def search(self, queries: Sequence[Query], observe: Observe = _no_observer) -> list[Answer]:
        """Answer queries together: one pass through the encoder, one through the index."""
        return self.answer(queries, self.embed(self.tokens([query.text for query in queries]), observe), observe)

    def answer(self, queries: Sequence[Query], vectors: Float32, observe: Observe = _no_observer) -> list[Answer]:
        """Answer queries whose vectors are known, (n, d') float32.

        `observe` is told the seconds of each stage as it ends: "search" (with what its filter means), and "filter"
        (what is kept and why). Raises InputError for a filter on a field that no document has.
        """
        start = time.perf_counter()
        # At least the K of the policy: what is relative to the best or to the list is so whatever k is asked for. Each
        # K by itself: in a longer list an approximate index finds more, which a query must not owe to its company.
        alike: dict[tuple[int, Filter, Filter], list[int]] = {}
        for row, query in enumerate(queries):
            alike.setdefault((self.depth(query), query.permitted, query.filter or ()), []).append(row)
        found: list[tuple[list[int], Filter, TopK]] = []
        for (depth, permitted, asked_for), rows in alike.items():
            wanted = both(permitted, asked_for)
            found.append((rows, wanted, self._top(vectors[rows], depth, wanted)))
        searched = time.perf_counter()
        observe("search", searched - start)
        answers: dict[int, Answer] = {}
        for rows, wanted, top in found:
            asked, policy = [queries[row] for row in rows], self.policy.within(wanted)
            answers |= zip(rows, self._cuts(asked, vectors[rows], top, policy), strict=True)
        observe("filter", time.perf_counter() - searched)
        return [answers[row] for row in range(len(queries))]

    def depth(self, query: Query) -> int:
        """How many documents are searched for, of which the first `query.k` are considered."""
        return max(self.policy.k, query.k)

    def rescore(self, query: Query, vector: Float32, positions: NDArray[np.int64]) -> Answer:
        """The answer to a query that was searched before; vector: (d',), positions: (w,) of all that was found.

        Similarities are computed anew. Raises ValueError where no search finds these: too many or too few, one of them
        twice, outside the filter or out of order.
        """
        wanted, documents = both(query.permitted, query.filter or ()), len(self.index)
        within = self.metadata.where(wanted) if wanted else None
        if ((positions < 0) | (positions >= documents)).any() or not (within is None or within[positions].all()):
            raise ValueError("documents that the search is not about")
        if len(positions) != min(self.depth(query), documents if within is None else np.count_nonzero(within)):
            raise ValueError("more documents, or fewer, than a search finds")
        scores = self.index.score(vector[None], positions[None])
        better, worse = scores[0, :-1], scores[0, 1:]
        ordered = (better > worse) | ((better == worse) & (positions[:-1] < positions[1:]))
        if not (np.isfinite(scores).all() and ordered.all()):  # nor can one be there twice
            raise ValueError("documents in another order than that of their similarity")
        (answer,) = self._cuts([query], vector[None], TopK(scores, positions[None]), self.policy.within(wanted))
        return answer

    def _top(self, vectors: Float32, depth: int, wanted: Filter) -> TopK:
        if not wanted:
            return self.index.search(vectors, depth)
        return self.index.search_within(vectors, depth, Within(self.metadata.where(wanted)))

    def _cuts(self, queries: Sequence[Query], vectors: Float32, top: TopK, policy: Policy) -> Iterator[Answer]:
        """What is kept of each query's top-K; policy: of searches within their filter, which is the same for all."""
        relevance = self.relevance.estimate(vectors, top) if self.relevance else None
        decisions = decision_scores(policy.kind, top.scores, relevance)
        # How rare a word is, which a refusal may rest on, would tell whether any document has it.
        abstention = None if queries[0].permitted else self.abstention
        answered = abstention.answered([query.text for query in queries], vectors, top) if abstention else None
        k = policy.k
        passing = keep_answered(decisions[:, :k], policy.threshold, answered).sum(axis=1).tolist()
        for row, query in enumerate(queries):
            found = _Found(
                top.positions[row],
                top.scores[row],
                decisions[row],
                None if relevance is None else relevance[row],
                None if answered is None else answered[row : row + 1],
            )
            watched = None if query.filter or query.permitted else Uncut(found.scores[:k], passing[row])
            yield self._cut(query, found, policy, watched)

    def _cut(self, query: Query, found: _Found, policy: Policy, watched: Uncut | None) -> Answer:
        """Keep what passes of the first k; should that be too few, what comes first of the rest."""
        own = query.threshold is not None
        threshold = np.float32(query.threshold) if own else policy.threshold
        answered = None if own else found.answered
        kept = keep_answered(found.decisions[None, : query.k], threshold, answered)[0]
        missing = query.min_results - int(kept.sum())
        if missing > 0:
            kept[np.flatnonzero(~kept)[:missing]] = True
        chosen = np.flatnonzero(kept)
        refused = answered is not None and not answered.any()
        # Within a filter, refusals are not certified.
        certified = self.abstention is None or not (query.filter or query.permitted)
        return Answer(
            positions=found.positions[chosen],
            scores=found.scores[chosen],
            ranks=chosen + 1,
            relevance=None if found.relevance is None else found.relevance[chosen],
            considered=len(kept),
            best_score=float(found.scores[0]) if len(kept) else None,
            threshold=None if threshold is None else float(threshold),
            policy=policy.kind,
            calibrated=not own and certified and policy.covers(query.k),
            reason=_reason(len(kept), len(chosen), refused),
            uncut=watched,
            found=found.positions,
        )


def _reason(considered: int, kept: int, refused: bool) -> Reason | None:
    """Why nothing is kept: an index of documents returns none only where the filter leaves none."""
    if kept:
        return None
    if not considered:
        return "no_documents_match_filter"
    return "unanswerable" if refused else "all_below_threshold"
