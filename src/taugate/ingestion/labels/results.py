"""The results that a judge is asked about: those that a release returns, and documents that it may have missed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import query_terms
from taugate.retrieval.policy.policy import POLICIES
from taugate.retrieval.release.reader import Release

Float64 = NDArray[np.float64]
_AT_ONCE = 256  # queries whose similarities to every document are in memory together
MAX_OTHERS = 5  # passages shown if a query has no relevant result


@dataclass(frozen=True)
class Results:
    """The results of q queries before the threshold is applied, K of each, best first.

    Attributes:
        positions: (q, K) int64 positions of the documents.
        decisions: (q, K) float32 values that the policy compares with τ.
        relevance: (q, K) float64 probability that each result is relevant; None if the release has no relevance model.
    """

    positions: NDArray[np.int64]
    decisions: NDArray[np.float32]
    relevance: Float64 | None


def search_uncut(release: Release, texts: Sequence[str]) -> Results:
    """Search for queries as the service does, without applying the threshold.

    Args:
        release: Release to search.
        texts: Texts of the queries, one at least.
    """
    retriever, policy = release.retriever, release.retriever.policy
    positions, decisions, relevances = [], [], []
    for start in range(0, len(texts), _AT_ONCE):
        vectors = retriever.encode(texts[start : start + _AT_ONCE])
        top = retriever.index.search(vectors, policy.k)
        relevance = None if retriever.relevance is None else retriever.relevance.estimate(vectors, top)
        positions.append(top.positions)
        decisions.append(POLICIES[policy.kind].decide(top.scores, relevance))
        if relevance is not None:
            relevances.append(relevance.astype(np.float64))
    return Results(
        np.concatenate(positions), np.concatenate(decisions), np.concatenate(relevances) if relevances else None
    )


def lexical_candidates(
    documents: Iterable[Document], texts: Sequence[str], positions: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the positions of documents that share the query's words, and that the search does not return.

    A judge who sees only results of one system never learns what it misses. TREC therefore judges the pooled results of
    several systems (Spärck Jones and van Rijsbergen, British Library Report 5266, 1975); here the other system is BM25.

    Args:
        documents: The documents that are compared.
        texts: Texts of q queries.
        positions: Positions of the results of each.

    Returns:
        Up to MAX_OTHERS documents per query, best first; documents without any of its words are left out.
    """
    lexical = LexicalIndex.of(document.encoded_text for document in documents)
    candidates = []
    for text, returned in zip(texts, positions, strict=True):
        scores = lexical.term_scores(query_terms(text)).scores
        scores[[*returned]] = 0
        best = np.argsort(-scores, kind="stable")[:MAX_OTHERS]
        candidates.append([int(position) for position in best if scores[position] > 0])
    return candidates
