"""Exact search by a score with a lexical part: cosine + w · share.

Two lists propose candidates: the documents with the highest cosines, and those whose share may be high enough to reach
the K-th score with a lower cosine. Both are exact, so no document of the top-K is missing (Fagin, Lotem and Naor,
"Optimal aggregation algorithms for middleware", PODS 2001: the threshold algorithm).
"""

from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, HybridVectors, QueryVectors, Terms
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE, FlatIndex, best_of, brute_force_top_k, score_all
from taugate.retrieval.index.lexical import LexicalCandidates, LexicalIndex
from taugate.retrieval.index.top_k import DocumentSubset, Index, Searchable, TopK
from taugate.retrieval.vectors import products, rounding_bound

_Positions = NDArray[np.int64]

# Documents beyond K with the highest cosines, one in 128 within these limits: the more, the fewer other documents can
# reach the K-th score. 240 of 57,953 documents proved each of 400 queries, 48 all of 1,000 among 1,204 documents.
_MIN_NEAREST, _MAX_NEAREST, _NEAREST_ONE_IN = 48, 240, 128
# Share of the documents, one in this many, that are proposed by their words for one query at most, before the list of
# cosines is widened instead: the cosine of a pair takes about 16 times as long as in a scan of all documents.
_ONE_IN = 16
# Postings that are read for one query at most, and documents that they propose, if the index is approximate anyway.
# Four times as many of either took up to 0.5 ms more for a million documents, and improved no list of 100 queries.
_MAX_POSTINGS, _MAX_PROPOSED = 1 << 14, 64
# More than the rounding of a score and its bound in float32, over 1 + w.
_ROUNDING = 1e-6
# Documents of a corpus that are all compared by both parts, which is faster than two lists then: 50 MB at d = 384. Such
# queries are compared together while that makes so many products: 16 MB.
_MAX_SCANNED, _MAX_PRODUCTS = 1 << 15, 1 << 22
# In a subset of fewer than one in this many documents, each is scored; see flat._ONE_IN.
_SCANNED_ONE_IN = 128


class Scored(NamedTuple):
    """Documents of one query and their scores, (c,) each."""

    positions: _Positions
    scores: Float32

    def joined(self, others: Self) -> Self:
        """Add other documents."""
        positions = np.concatenate([self.positions, others.positions])
        return type(self)(positions, np.concatenate([self.scores, others.scores]))

    def score_at(self, k: int) -> float:
        """Return the k-th best score."""
        return float(np.partition(self.scores, -k)[-k])

    def best(self, k: int) -> Self:
        """Return the k best, best first; ties go to the lower position."""
        order = np.lexsort((self.positions, -self.scores))[:k]
        return type(self)(self.positions[order], self.scores[order])


class HybridIndex:
    """N documents that are searched by cosine + weight · share; implements Index.

    Results are exact if the index of the vectors is. With an approximate one, the candidates are its results and the
    documents with the highest shares.

    Attributes:
        weight: Weight w of the share, above 0.
    """

    def __init__(self, vectors: Index, lexical: LexicalIndex, weight: float) -> None:
        if len(vectors) != len(lexical):
            raise ValueError(f"{len(vectors)} vectors and the words of {len(lexical)} documents")
        self.vectors = vectors
        self.lexical = lexical
        self.weight = weight
        # More than the rounding of a score in float32, whose two parts add up to 1 + w at most.
        self._rounding = np.float32(rounding_bound(vectors.dimension) + _ROUNDING * (1 + weight))

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.vectors.dimension

    def score(self, queries: QueryVectors, positions: _Positions) -> Float32:
        """See Scorer.score."""
        cosines, weighted = self.parts(queries, positions)
        return cosines + weighted

    def parts(self, queries: QueryVectors, positions: _Positions) -> tuple[Float32, Float32]:
        """Return the two parts of `score`, cosines and weighted shares, (n, c) float32 each, for (n, c) positions."""
        hybrid = require_words(queries)
        weighted = np.zeros(positions.shape, dtype=np.float32)
        for row, (terms, own) in enumerate(zip(hybrid.terms, positions, strict=True)):
            weighted[row] = self.weighted(terms, own)
        return self.vectors.score(hybrid.dense, positions), weighted

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See Searchable.search."""
        hybrid, k = require_words(queries), min(k, len(self))
        if self._scanned is None:
            return self._search(hybrid, k, None)
        scores = np.empty((len(hybrid), k), dtype=np.float32)
        positions = np.empty((len(hybrid), k), dtype=np.int64)
        step = max(1, _MAX_PRODUCTS // len(self))
        for start in range(0, len(hybrid), step):
            rows = np.arange(start, min(start + step, len(hybrid)))
            top, proven = self._scan(self._scanned, hybrid[rows], k)
            scores[rows], positions[rows] = top.scores, top.positions
            if not proven.all():
                rows = rows[~proven]
                top = self._search(hybrid[rows], k, None)
                scores[rows], positions[rows] = top.scores, top.positions
        return TopK(scores, positions)

    @cached_property
    def _scanned(self) -> Float32 | None:
        """A copy of the vectors, (N, d), that BLAS can read; a mapped file is not aligned. None for a large corpus."""
        if len(self) > _MAX_SCANNED or not isinstance(self.vectors, FlatIndex):
            return None
        return self.vectors.vectors[np.arange(len(self))]

    def _scan(self, vectors: Float32, queries: HybridVectors, k: int) -> tuple[TopK, NDArray[np.bool_]]:
        """Compare all documents in float32, and score the best of them exactly.

        Returns the k best documents of each query, and for which queries they are proven to be the best, (n,).

        Args:
            vectors: (N, d) vectors of the documents.
        """
        weighted: Float32 = np.multiply(np.float32(self.weight), self.lexical.all_shares(queries.terms))
        rough = weighted + products(queries.dense, vectors)
        fetch = min(k + SPARE, len(self))
        candidates = np.sort(np.argpartition(rough, -fetch, axis=1)[:, -fetch:], axis=1)
        exact = self.vectors.score(queries.dense, candidates) + np.take_along_axis(weighted, candidates, axis=1)
        top = best_of(candidates, exact, k)
        limits = np.take_along_axis(rough, candidates, axis=1).min(axis=1) + self._rounding
        return top, (limits < top.scores[:, -1]) | (fetch == len(self))

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within."""
        hybrid, members = require_words(queries), within.positions
        if len(members) > max(k + SPARE, len(self) // _SCANNED_ONE_IN):
            return self._search(hybrid, k, within)
        results = [brute_force_top_k(self, hybrid[row : row + 1], k, members) for row in range(len(hybrid))]
        scores, positions = zip(*results, strict=True)
        return TopK(np.stack(scores), np.stack(positions))

    def _search(self, queries: HybridVectors, k: int, within: DocumentSubset | None) -> TopK:
        """Search with growing lists of cosines, and score every document for the queries that are left."""
        members = None if within is None else within.positions
        count = len(self) if members is None else len(members)
        k = min(k, count)
        scores = np.empty((len(queries), k), dtype=np.float32)
        positions = np.empty((len(queries), k), dtype=np.int64)
        pending, fetch = np.arange(len(queries)), k + self._spare(within)
        max_fetch = max(MAX_CANDIDATES, fetch)
        while len(pending) and fetch <= max_fetch:
            dense, size = queries.dense[pending], min(fetch, count)
            if within is None:
                nearest = self.vectors.search(dense, size)
            else:
                nearest = self.vectors.search_within(dense, size, within)
            unproven = []
            for place, row in enumerate(pending.tolist()):
                near = Scored(nearest.positions[place], nearest.scores[place])
                top = self._top_k(queries[row : row + 1], near, k, within)
                if top is None:
                    unproven.append(row)
                else:
                    scores[row], positions[row] = top.scores, top.positions
            pending = np.array(unproven, dtype=np.int64)
            fetch *= 4
        for row in pending.tolist():
            scores[row], positions[row] = brute_force_top_k(self, queries[row : row + 1], k, members)
        return TopK(scores, positions)

    def _is_exact(self, within: DocumentSubset | None) -> bool:
        """Return whether the cosines of all documents are compared."""
        return within is not None or isinstance(self.vectors, FlatIndex)

    def _spare(self, within: DocumentSubset | None) -> int:
        """Return how many documents beyond K are first fetched; as many as without words if the index is a graph."""
        if not self._is_exact(within):
            return SPARE
        return min(max(len(self) // _NEAREST_ONE_IN, _MIN_NEAREST), _MAX_NEAREST)

    def _top_k(self, query: HybridVectors, nearest: Scored, k: int, within: DocumentSubset | None) -> Scored | None:
        """Return the k best documents of one query, or None if these lists do not prove it.

        Args:
            nearest: The documents with the highest cosines, k or more, and their cosines.
            within: Documents to search; None for all.
        """
        terms, last = query.terms[0], float(nearest.scores[-1])
        scored = Scored(nearest.positions, nearest.scores + self.weighted(terms, nearest.positions))
        if len(nearest.positions) == (len(self) if within is None else len(within)):
            return scored.best(k)
        exact = self._is_exact(within)
        found = self.lexical.reaching(terms, self.needed_share(scored, k, last), None if exact else _MAX_POSTINGS)
        others = _others(found, nearest.positions, within)
        limit = max(MAX_CANDIDATES, len(self) // _ONE_IN) if exact else _MAX_PROPOSED
        promising = others.most(limit)
        start, size = 0, len(nearest.positions)
        while start < len(promising) and promising.shares[start] >= self.needed_share(scored, k, last):
            some = promising.positions[start : start + size]
            cosines = score_all(self.vectors, query.dense, some)
            scored = scored.joined(Scored(some, cosines + self.weighted(terms, some)))
            start, size = start + size, 2 * size
        proven = others.complete and (start < len(promising) or len(promising) == len(others))
        return scored.best(k) if proven or not exact else None

    def needed_share(self, scored: Scored, k: int, last: float) -> float:
        """Return the share that a document with a cosine of at most `last` needs to reach the K-th score."""
        # Without the words of the query, a document does not come before any of the nearest, whatever this is.
        return (scored.score_at(k) - last - _ROUNDING * (1 + self.weight)) / self.weight

    def weighted(self, terms: Terms, positions: _Positions) -> Float32:
        """Return the weighted shares of one query and some documents, (c,) float32."""
        return np.float32(self.weight) * self.lexical.shares(terms, positions)


def _others(found: LexicalCandidates, nearest: _Positions, within: DocumentSubset | None) -> LexicalCandidates:
    """Return the candidates that are searched and not among the nearest documents."""
    new = np.ones(len(found), dtype=np.bool_) if within is None else within.contains(found.positions)
    places = np.searchsorted(found.positions, nearest)
    inside = places < len(found)
    same = places[inside][found.positions[places[inside]] == nearest[inside]]
    new[same] = False
    return LexicalCandidates(found.positions[new], found.shares[new], found.complete)


def vector_index(index: Index) -> Index:
    """Return the index of the vectors alone, for a search without words, such as from document to document."""
    words = words_of(index)
    return index if words is None else words.vectors


def words_of(index: Searchable) -> HybridIndex | None:
    """Return an index whose scores have a lexical part; None for another."""
    return index if isinstance(index, HybridIndex) else None


def require_words(queries: QueryVectors) -> HybridVectors:
    """Return queries that must have words; raises TypeError if they have none."""
    if not isinstance(queries, HybridVectors):
        raise TypeError("a score with a lexical part needs the words of the queries")
    return queries
