"""Explains what a search in two stages does with one document: the first stage's explanation, and then the second's."""

from dataclasses import replace

import numpy as np

from taugate.policy.policy import POLICIES
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.explanation import explain
from taugate.retrieval.query import Answer, Explanation, Query, Rule
from taugate.retrieval.retriever import Retriever


def explain_stages(retriever: Retriever, documents: Documents, query: Query, document_id: str) -> Explanation:
    """Explain what a search does with a document, in one stage or two.

    With two, rank and score are the second stage's, among its candidates; those of the first stage are fields of their
    own. If the second stage is not available, the explanation is the first stage's, as its results would be.

    Args:
        document_id: Id of a passage, or of a document, which stands for all its passages.
    """
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
