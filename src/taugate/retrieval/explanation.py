"""Explains what a search does with one document: where it ranks, which rule drops it, and by how much."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.policy.policy import POLICIES
from taugate.retrieval.documents.filters import Filter, both, composed, on_fields
from taugate.retrieval.documents.store import Document, Documents
from taugate.retrieval.encoder.loading import OwnVectors
from taugate.retrieval.index.flat import score_all
from taugate.retrieval.index.top_k import TopK, count_documents
from taugate.retrieval.query import Answer, Explanation, Parts, Query, Rule, ScoreParts, UnknownDocument, score_parts
from taugate.retrieval.retriever import Retriever
from taugate.retrieval.vectors import shortest_decimal

_MAX_WORDS = 8  # in a sentence, which would be hard to read with more; the JSON has all


def explain(retriever: Retriever, documents: Documents, query: Query, document_id: str) -> Explanation:
    """Explain what a search does with a document."""
    # This runs the search, then compares the query with every document to find the rank.
    passages = documents.positions(document_id)
    if not len(passages):
        raise UnknownDocument(f"the release has no document with the id {document_id[:200]!r}")
    permitted = _within(retriever, query.permitted, passages)
    if not len(permitted):
        return _excluded(retriever, document_id, "key_filter", "The filter of the API key hides it.")
    visible = _within(retriever, query.filter or (), permitted)
    if not len(visible):
        return _filtered(retriever, documents, query, permitted)
    return _Search(retriever, documents, query).explain(visible)


def _within(retriever: Retriever, query_filter: Filter, passages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the passages that meet a filter; an empty filter keeps all."""
    return passages[retriever.passages.meets(query_filter, passages)] if query_filter else passages


def _filtered(retriever: Retriever, documents: Documents, query: Query, passages: NDArray[np.int64]) -> Explanation:
    """Explain a document that the filter of the request excludes, by the positions of its permitted passages."""
    document = documents[int(passages[0])]
    missed = [
        _shown_field(document, next(on_fields((condition,))).field)
        for condition in query.filter or ()
        if not retriever.passages.meets((condition,), passages).any()
    ]
    # Each condition alone may be met by another passage of the document.
    why = f"The request's filter excludes it{f': {missed[0]}' if missed else ''}."
    return _excluded(retriever, document.document_id, "filter", why, _is_truncated(retriever, documents, passages[0]))


def _excluded(
    retriever: Retriever, document_id: str, rule: Rule, why: str, truncated: bool | None = None
) -> Explanation:
    """Explain a document that a filter excludes, so that it has no rank and no score."""
    return Explanation(
        document_id=document_id,
        id=None,
        rank=None,
        ranked=None,
        score=None,
        relevance=None,
        policy=retriever.policy.kind,
        compared=None,
        threshold=None,
        kept=False,
        rule=rule,
        why=why,
        truncated=truncated,
        filtered=True,
    )


def _shown_field(document: Document, name: str) -> str:
    """Describe a document's value in a metadata field."""
    value = next((value for own, value in document.metadata.items() if composed(own) == name), None)
    return f"it has no {name!r}" if value is None else f"{name!r} is {value!r}"


def _is_truncated(retriever: Retriever, documents: Documents, position: np.int64) -> bool | None:
    """Return whether the encoder reads only the beginning of a document; None without an encoder."""
    if isinstance(retriever.encoder, OwnVectors):
        return None
    (tokens,) = retriever.encoder.tokenize([documents[int(position)].encoded_text], "document")
    return tokens.truncated


class _Search:
    """A search with everything that it considers, and the ranks of the other documents."""

    def __init__(self, retriever: Retriever, documents: Documents, query: Query) -> None:
        """Run the search; see `explain` for the parameters."""
        (query,), self._vector = retriever.read([query])
        self._retriever, self._documents, self._query = retriever, documents, query
        self._parents = retriever.parents if query.group_by else None
        self._compared = retriever.with_words([query.text], self._vector)
        # The same search three times: as requested, with all considered results, and ungrouped for the relevance model.
        everything = replace(query, min_results=query.k)
        searches = [query, everything, replace(everything, group_by=None)]
        self._answer, self._considered, self._passages = retriever.answer(searches, np.repeat(self._vector, 3, axis=0))
        self._scope = both(query.permitted, query.filter or ())

    def explain(self, passages: NDArray[np.int64]) -> Explanation:
        """Explain one document."""
        position, score = self._choose(passages)
        passage_rank, rank, ranked = self._ranks(position, score)
        relevance, compared = self._measure(position, score, passage_rank)
        kept = bool((self._answer.positions == position).any())
        rule = self._rule(position, rank, score, kept)
        parts = self._parts(position, score)
        passage = self._documents[position]
        return Explanation(
            document_id=passage.document_id,
            id=passage.id,
            rank=rank,
            ranked=ranked,
            score=shortest_decimal(score),
            relevance=None if relevance is None else shortest_decimal(relevance),
            policy=self._answer.policy,
            compared=shortest_decimal(compared),
            threshold=None if self._answer.threshold is None else shortest_decimal(self._answer.threshold),
            kept=kept,
            rule=rule,
            why=f"{self._why(rule, position, rank, score, compared)}.{_sum_of(parts, score)}",
            truncated=_is_truncated(self._retriever, self._documents, np.int64(position)),
            query_truncated=self._query.truncated,
            not_comparable=self._answer.not_comparable,
            filtered=False,
            parts=None if parts is None else Parts(**parts.of(0)),
            matched_words=parts and parts.matched_words and parts.matched_words[0],
        )

    def _parts(self, position: int, score: np.float32) -> ScoreParts | None:
        """Return the parts of the score; None if the score has no lexical part."""
        words, scores = self._retriever.words, np.array([score])
        if words is None:
            return None
        return score_parts(words, self._query.text, self._vector[0], np.array([position]), scores)

    def _choose(self, passages: NDArray[np.int64]) -> tuple[int, np.float32]:
        """Choose the passage to explain: the first that the search returns, else the most similar."""
        scores = self._retriever.index.score(self._compared, passages[None])[0]
        returned = [place for place in self._answer.positions.tolist() if place in passages]
        place = int(np.searchsorted(passages, returned[0])) if returned else int(scores.argmax())
        return int(passages[place]), scores[place]

    def _ranks(self, position: int, score: np.float32) -> tuple[int, int, int | None]:
        """Return the rank of a passage, its rank in a reply, and how many passages or documents are ranked."""
        if self._retriever.passages.remote:
            rank = self._listed_rank(position)
            return rank, rank, None if self._scope else len(self._documents)
        within = self._retriever.metadata.where(self._scope) if self._scope else np.ones(len(self._documents), np.bool_)
        members = np.flatnonzero(within)
        scores = score_all(self._retriever.index, self._compared, members)
        better = members[(scores > score) | ((scores == score) & (members < position))]
        parents = self._parents
        if parents is None:
            return len(better) + 1, len(better) + 1, len(members)
        rank = count_documents(parents, better[parents[better] != parents[position]]) + 1
        return len(better) + 1, rank, count_documents(parents, members)

    def _listed_rank(self, position: int) -> int:
        """Return the place of a passage in the list of the search."""
        retrieved = self._passages.retrieved
        places = [] if retrieved is None else np.flatnonzero(retrieved == position).tolist()
        if not places:
            raise InputError(
                "document_id: the search does not list this document, and the engine cannot count the documents above "
                "it; request a larger k"
            )
        return int(places[0]) + 1

    def _measure(self, position: int, score: np.float32, rank: int) -> tuple[float | None, float]:
        """Return the relevance of a passage and its decision score, computed from the list of passages."""
        # `rank`, the rank among all passages, is used if the passage is beyond the list.
        retrieved = self._passages.retrieved
        assert retrieved is not None  # noqa: S101 (for the type checker: that search is not grouped)
        positions, ranks = retrieved, np.arange(1, len(retrieved) + 1)
        if position not in positions:
            positions, ranks = np.append(positions, position), np.append(ranks, rank)
        scores = self._retriever.index.score(self._compared, positions[None])
        place = int(np.flatnonzero(positions == position)[0])
        model, relevance = self._retriever.relevance, None
        if model is not None:
            relevance = model.estimate(self._vector, TopK(scores, positions[None]), ranks)
        compared = POLICIES[self._answer.policy].decide(scores, relevance)
        return None if relevance is None else float(relevance[0, place]), float(compared[0, place])

    def _rule(self, position: int, rank: int, score: np.float32, kept: bool) -> Rule:
        places = np.flatnonzero(self._considered.positions == position)
        if not len(places):
            if self._sibling(position) is not None:
                return "chunk"
            # An approximate index may miss a passage that ranks above the last one it returned.
            beyond = rank > self._query.k and score <= self._considered.scores[-1]
            return "rank" if beyond else "index"
        below = bool(self._considered.below_threshold[places[0]])
        if kept:
            return "min_results" if below else "kept"
        if self._answer.refused:
            return "unreadable" if self._query.unreadable else "unanswerable"
        return "threshold"

    def _sibling(self, position: int) -> int | None:
        """Return the considered passage of the same document if results are grouped, None if there is none."""
        if self._parents is None:
            return None
        considered = self._considered.positions
        siblings = considered[self._parents[considered] == self._parents[position]]
        return int(siblings[0]) if len(siblings) else None

    def _why(self, rule: Rule, position: int, rank: int, score: np.float32, compared: float) -> str:
        """Return the outcome as a sentence without its full stop, with the margin."""
        similar = self._retriever.words is None
        name, nearer = ("similarity", "more similar") if similar else ("score", "a better match")
        score_name, tau = POLICIES[self._answer.policy].compared.format(score=name), self._answer.threshold
        margin = "no threshold is in force"
        if tau is not None:
            margin = f"its {score_name} {compared:.4f} is {_distance(compared, tau)} the threshold {tau:.4f}"
        requested = f"min_results requests {self._query.min_results}"
        match rule:
            case "kept" if tau is not None and compared < np.float32(tau):
                why = f"It is returned as the best result of an answered query, although {margin}"
            case "kept":
                why = f"It is returned: {margin}"
            case "min_results":
                why = f"It is returned only because {requested}: {self._refusal() if self._answer.refused else margin}"
            case "threshold":
                why = f"The threshold drops it: {margin}"
            case "unanswerable" | "unreadable":
                why = f"The query as a whole is refused: {self._refusal()}"
            case "rank":
                considered, last = len(self._considered.positions), float(self._considered.scores[-1])
                why = (
                    f"Its rank is {rank}, and the search considers the first {considered}: its {name} {score:.4f} "
                    f"is {_shown(last - float(score))} below that of the last one considered"
                )
            case "chunk" if (sibling := self._sibling(position)) is not None:
                why = f"Its document is considered by the chunk {self._documents[sibling].id!r}, which is {nearer}"
            case _:
                why = f"The approximate index does not find it, although its rank is {rank}"
        part = ". The encoder reads only the beginning of the query" if self._query.truncated else ""
        return f"{why}{part}"

    def _refusal(self) -> str:
        """Return why the query is refused, with the margin if it has one."""
        if self._query.unreadable:
            return "the encoder knows less than half of its characters, so its similarities are meaningless"
        rule, retrieved = self._retriever.abstention, self._passages.retrieved
        assert rule is not None  # noqa: S101 (for the type checker: nothing else refuses a query)
        assert retrieved is not None  # noqa: S101 (for the type checker: that search is not grouped)
        top = TopK(self._retriever.index.score(self._compared, retrieved[None]), retrieved[None])
        score = float(rule.score.of([self._query.text], self._vector, top)[0])
        return (
            f"the corpus seems to have no answer: the query's score {score:.4f} is {_shown(rule.tau - score)} below "
            f"the {rule.tau:.4f} needed for an answer"
        )


def _sum_of(parts: ScoreParts | None, score: np.float32) -> str:
    """Return a sentence on the parts of a score, empty if it has no lexical part."""
    if parts is None or parts.matched_words is None:
        return ""
    words = parts.matched_words[0]
    if not words:
        return f" Its score {score:.4f} is similarity alone: it has no word of the query."
    more = f" and {len(words) - _MAX_WORDS} more" if len(words) > _MAX_WORDS else ""
    cosine, lexical = parts.of(0).values()
    listed = f"{', '.join(words[:_MAX_WORDS])}{more}"
    return f" Its score {score:.4f} is {cosine:.4f} similarity + {lexical:.4f} shared words ({listed})."


def _distance(value: float, tau: float) -> str:
    if value == tau:
        return "equal to"
    return f"{_shown(abs(value - tau))} {'above' if value > tau else 'below'}"


def _shown(difference: float) -> str:
    """Format a difference so that a small one is not shown as zero."""
    return f"{difference:.4f}" if difference == 0 or difference >= 1e-4 else f"{difference:.1e}"


def explain_stages(retriever: Retriever, documents: Documents, query: Query, document_id: str) -> Explanation:
    """Explain what a search does with a document, in one stage or two."""
    # With two, rank and score are the second stage's, among its candidates; those of the first stage are fields of
    # their own. If the second stage is not available, the explanation is the first stage's, as its results would be.
    if retriever.second is None:
        return explain(retriever, documents, query, document_id)
    alone, candidates = replace(retriever, second=None), max(retriever.second.rule.candidates, query.k)
    # An engine tells the ranks of the results that it lists, which have to be all candidates.
    listed_all = replace(query, k=candidates) if retriever.passages.remote else query
    first = explain(alone, documents, listed_all, document_id)
    if first.filtered or first.id is None:
        return first
    grouped = retriever.groups(query)
    listing = replace(query, k=candidates, min_results=candidates, group_by=None)
    if grouped:  # of documents beyond the first k, the candidates need not hold the best passage
        listing = replace(query, min_results=query.k)
    read, vectors = retriever.read([query, listing])
    served, listed = retriever.answer(read, vectors)
    if served.stage != "second" or listed.stage != "second":
        # A threshold of the request is meant for the second stage's scores.
        served_first = explain(alone, documents, replace(query, threshold=None), document_id)
        why = f"{served_first.why} The second stage is not available."
        return served_first.model_copy(update={"why": why, "not_comparable": served.not_comparable})
    passages = documents.positions(document_id)
    best = [position for position in (*served.positions.tolist(), *listed.positions.tolist()) if position in passages]
    if best and documents[best[0]].id != first.id:  # the second stage prefers another passage of the document
        first = explain(alone, documents, listed_all, documents[best[0]].id)
    places = np.flatnonzero(listed.positions == (best or [-1])[0])
    base = first.model_copy(
        update={
            "policy": served.policy,
            "threshold": served.threshold,
            "first_stage_rank": first.rank,
            "first_stage_score": first.score,
            "ranked": len(listed.positions),
            "not_comparable": served.not_comparable,
        }
    )
    if not len(places):
        scored = f"{len(listed.positions)} documents" if grouped else f"the first {candidates} alone"
        why = f"The first stage ranks it {first.rank}, and the second stage scores {scored}."
        # Grouped, the list may have a better passage of the same document.
        parents = retriever.parents if grouped else None
        sibling = parents is not None and np.isin(parents[listed.positions], parents[passages]).any()
        return base.model_copy(
            update={"rank": None, "score": None, "relevance": None, "compared": None, "kept": False}
            | {"rule": "chunk" if sibling else "rank", "why": why}
        )
    return _ranked(base, read[0], served, listed, int(places[0]))


def _ranked(base: Explanation, query: Query, served: Answer, listed: Answer, place: int) -> Explanation:
    """Explain a candidate at a place in the second stage's list."""
    relevance = None if listed.relevance is None else listed.relevance[None]
    compared = float(POLICIES[served.policy].decide(listed.scores[None], relevance)[0, place])
    kept = bool((served.positions == listed.positions[place]).any())
    rule = _rule(query, served, listed, place, kept=kept)
    score = float(listed.scores[place])
    stages = f"the first stage ranks it {base.first_stage_rank}, the second {place + 1} with the score {score:.4f}"
    margin = ""
    if served.threshold is not None:
        margin = f"; its {served.policy} {compared:.4f} is compared with the threshold {served.threshold:.4f}"
    outcome = {
        "kept": "It is returned",
        "min_results": f"It is returned only because min_results requests {query.min_results}",
        "threshold": "The threshold drops it",
        "rank": f"It is not among the first {query.k}",
    }.get(rule, "The query as a whole is refused")
    return base.model_copy(
        update={
            "rank": place + 1,
            "score": score,
            "relevance": None if relevance is None else float(relevance[0, place]),
            "compared": compared,
            "kept": kept,
            "rule": rule,
            "why": f"{outcome}: {stages}{margin}.",
        }
    )


def _rule(query: Query, served: Answer, listed: Answer, place: int, *, kept: bool) -> Rule:
    if kept:
        shown = int(np.flatnonzero(served.positions == listed.positions[place])[0])
        return "min_results" if served.below_threshold[shown] else "kept"
    if served.refused:
        return "unreadable" if query.unreadable else "unanswerable"
    return "rank" if place >= query.k else "threshold"
