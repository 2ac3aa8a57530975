"""Exact search by a score with a lexical part: cosine + w · share.

Two lists propose candidates, the documents with the highest cosines and those with the highest shares, and both are
widened until no other document can reach the K-th score (Fagin, Lotem and Naor, "Optimal aggregation algorithms for
middleware", PODS 2001: the threshold algorithm).
"""

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE, FlatIndex, best_of, brute_force_top_k, score_all
from taugate.retrieval.index.lexical import LexicalIndex, TermScores, share_of
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.vectors.queries import HybridVectors, QueryVectors, Terms
from taugate.retrieval.vectors.similarity import Float32

_Scored = tuple[NDArray[np.int64], Float32]  # positions of documents and their scores

# Share of the documents, one in this many, whose cosines are computed for one query at most before the list of cosines
# is widened instead: a pair costs about 16 times as much as in a scan of all documents.
_ONE_IN = 16
# Postings that are read for one query before the frequent terms are replaced by the bound of what they can add: about
# 0.5 ms. The bound is small because frequent terms have small weights.
MAX_POSTINGS = 1 << 16
# More than the rounding of a score and its bound in float32.
ROUNDING = 1e-6
# In a subset of fewer than one in this many documents, each is scored; see flat._ONE_IN.
_SCANNED_ONE_IN = 128


class HybridIndex:
    """N documents that are searched by cosine + weight · share; implements Index.

    Results are exact if the index of the vectors is. With an approximate one, the candidates are its results and the
    documents with the highest shares.

    Attributes:
        vectors: Index of the documents' vectors.
        lexical: Index of the documents' words.
        weight: Weight w of the share, above 0.
    """

    def __init__(self, vectors: Index, lexical: LexicalIndex, weight: float) -> None:
        if len(vectors) != len(lexical):
            raise ValueError(f"{len(vectors)} vectors and the words of {len(lexical)} documents")
        self.vectors = vectors
        self.lexical = lexical
        self.weight = weight

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.vectors.dimension

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        hybrid = with_words(queries)
        cosines = self.vectors.score(hybrid.dense, positions)
        shares = [self.lexical.shares(*row) for row in zip(hybrid.terms, positions, strict=True)]
        return self.fused(cosines, np.stack(shares)) if shares else cosines

    def parts(self, queries: QueryVectors, positions: NDArray[np.int64]) -> tuple[Float32, Float32]:
        """Return the two parts of `score`, cosines and weighted shares, (n, c) float32 each, for (n, c) positions."""
        hybrid = with_words(queries)
        shares = [self.lexical.shares(*row) for row in zip(hybrid.terms, positions, strict=True)]
        weighted = np.stack(shares) * np.float32(self.weight)
        return self.vectors.score(hybrid.dense, positions), weighted

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See Searchable.search."""
        return self._search(with_words(queries), k, None)

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within."""
        hybrid, members = with_words(queries), within.positions
        if len(members) > max(k + SPARE, len(self) // _SCANNED_ONE_IN):
            return self._search(hybrid, k, within)
        results = [brute_force_top_k(self, hybrid[row : row + 1], k, members) for row in range(len(hybrid))]
        scores, positions = zip(*results, strict=True)
        return TopK(np.stack(scores), np.stack(positions))

    def _search(self, queries: HybridVectors, k: int, within: DocumentSubset | None) -> TopK:
        """Search with growing lists of candidates, and score every document of the queries that are left."""
        members = None if within is None else within.positions
        count = len(self) if members is None else len(members)
        k = min(k, count)
        scores = np.empty((len(queries), k), dtype=np.float32)
        positions = np.empty((len(queries), k), dtype=np.int64)
        pending, fetch, max_fetch = np.arange(len(queries)), k + SPARE, max(MAX_CANDIDATES, k + SPARE)
        max_postings: int | None = MAX_POSTINGS
        while len(pending) and fetch <= max_fetch:
            nearest = self._nearest(queries.dense[pending], min(fetch, count), within)
            unproven = []
            for place, row in enumerate(pending.tolist()):
                near = TopK(nearest.scores[place : place + 1], nearest.positions[place : place + 1])
                top = self._top_k(queries[row : row + 1], near, k, max_postings, within, complete=fetch >= count)
                if top is None:
                    unproven.append(row)
                else:
                    scores[row], positions[row] = top.scores[0], top.positions[0]
            pending = np.array(unproven, dtype=np.int64)
            fetch, max_postings = 4 * fetch, None
        for row in pending.tolist():
            scores[row], positions[row] = brute_force_top_k(self, queries[row : row + 1], k, members)
        return TopK(scores, positions)

    def _nearest(self, dense: Float32, fetch: int, within: DocumentSubset | None) -> TopK:
        if within is None:
            return self.vectors.search(dense, fetch)
        return self.vectors.search_within(dense, fetch, within)

    def _top_k(
        self,
        query: HybridVectors,
        nearest: TopK,
        k: int,
        max_postings: int | None,
        within: DocumentSubset | None,
        *,
        complete: bool,
    ) -> TopK | None:
        """Return the top-K of one query, or None if these lists do not prove it.

        Args:
            query: One query.
            nearest: (1, fetch) documents with the highest cosines.
            k: Number of documents.
            max_postings: See LexicalIndex.term_scores.
            within: Documents to search; None for all.
            complete: Whether `nearest` has all searched documents.
        """
        cosines, positions, terms = nearest.scores[0], nearest.positions[0], query.terms[0]
        if complete:
            return best_row(positions, self.fused(cosines, self.lexical.shares(terms, positions)), k)
        of_terms = self.lexical.term_scores(terms, max_postings)

        def joined(positions: NDArray[np.int64], scores: Float32, new: NDArray[np.int64]) -> _Scored:
            """Score further documents."""
            if not len(new):
                return positions, scores
            more = self.fused(score_all(self.vectors, query.dense, new), self._shares(of_terms, terms, new))
            return np.concatenate([positions, new]), np.concatenate([scores, more])

        def others(positions: NDArray[np.int64], scores: Float32) -> NDArray[np.int64] | None:
            """Return the other documents that may be among the k best, or None if any may."""
            kth = float(np.partition(scores, len(scores) - k)[len(scores) - k])
            # They have at most the last cosine, so they reach the K-th score only with such a share.
            share = (kth - ROUNDING - float(cosines[-1])) / self.weight
            needed = share * of_terms.total - of_terms.omitted
            if needed <= 0:
                return None
            found = np.flatnonzero(of_terms.scores >= needed)
            if within is not None:
                found = found[within.contains(found)]
            return np.setdiff1d(found, positions, assume_unique=True)

        scores = self.fused(cosines, self._shares(of_terms, terms, positions))
        remaining = others(positions, scores)
        if remaining is not None and len(remaining) > len(positions):
            # The most promising ones raise the K-th score, which rules out most of the rest.
            likely = remaining[np.argpartition(-of_terms.scores[remaining], len(positions))[: len(positions)]]
            positions, scores = joined(positions, scores, likely)
            remaining = others(positions, scores)
        exact = isinstance(self.vectors, FlatIndex)
        if remaining is None or len(remaining) > max(MAX_CANDIDATES, len(self) // _ONE_IN):
            return None if exact else best_row(positions, scores, k)
        return best_row(*joined(positions, scores, remaining), k)

    def _shares(self, of_terms: TermScores, terms: Terms, positions: NDArray[np.int64]) -> Float32:
        """Return the shares of one query, read from the sums of its terms if these are complete."""
        if of_terms.omitted:
            return self.lexical.shares(terms, positions)
        return share_of(of_terms.scores[positions], of_terms.total)

    def fused(self, cosines: Float32, shares: Float32) -> Float32:
        """Return scores, given cosines and shares, all (c,) float32."""
        return cosines + np.float32(self.weight) * shares


def vector_index(index: Index) -> Index:
    """Return the index of the vectors alone, for a search without words, such as from document to document."""
    return index.vectors if isinstance(index, HybridIndex) else index


def with_words(queries: QueryVectors) -> HybridVectors:
    """Return queries that must have words; raises TypeError if they have none."""
    if not isinstance(queries, HybridVectors):
        raise TypeError("a score with a lexical part needs the words of the queries")
    return queries


def best_row(positions: NDArray[np.int64], scores: Float32, k: int) -> TopK:
    """Return the k best of scored documents as one row; ties go to the lower position."""
    order = np.argsort(positions)
    return best_of(positions[order][None], scores[order][None], k)
