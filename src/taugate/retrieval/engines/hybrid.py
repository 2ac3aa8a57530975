"""Search of an engine's collection by a score with a lexical part.

The engine proposes the documents with the highest cosines, and the postings in this process those with the highest
shares. The rows of the latter are read by position, and everything is scored here. As in `index/hybrid.py`, the lists
grow until no other document can reach the K-th score; if the engine's list is exact, so is the result.
"""

from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.engine import Positions
from taugate.retrieval.engines.index import EngineIndex, in_batches, score_members
from taugate.retrieval.engines.search import MAX_SCANNED, EngineSearch
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE
from taugate.retrieval.index.hybrid import MAX_POSTINGS, ROUNDING, HybridIndex, best_row, vector_index, with_words
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.passages import FoundPassages, Observe, unobserved
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.vectors.queries import HybridVectors, QueryVectors
from taugate.retrieval.vectors.similarity import Float32, similarity

# Sizes of the first lists beyond K: documents by cosine, and by share. Of 750 queries of five data sets, 17,063
# documents together, at K = 10 and w = 1, these lists prove 94 % of the results, and 98.5 % of the results are in them;
# with 16 and 16 it is 54 % and 78 %.
_NEAREST, _LIKELY = 4 * SPARE, 64


class EngineSearchable(Index, Protocol):
    """An index of vectors in an engine."""

    def begin(self, query_filter: Filter, observe: Observe, listed: int = 0) -> EngineSearch:
        """Begin a search; see EngineSearch for the parameters."""
        ...


class EngineHybridIndex(HybridIndex):
    """N documents of a collection that are searched by cosine + weight · share; implements Index.

    Attributes:
        vectors: Index of the collection.
        lexical: Index of the documents' words.
        weight: Weight w of the share, above 0.
    """

    vectors: EngineSearchable

    def __init__(self, vectors: EngineSearchable, lexical: LexicalIndex, weight: float) -> None:
        super().__init__(vectors, lexical, weight)

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See EngineIndex.search."""
        return in_batches(lambda batch: self.find(batch, k).top, queries, min(k, len(self)))

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See EngineIndex.search_within."""
        return score_members(self, queries, k, within)

    def find(
        self, queries: QueryVectors, k: int, query_filter: Filter = (), observe: Observe = unobserved
    ) -> FoundPassages:
        """Search among the documents that meet a filter; see EngineIndex.find.

        The engine is asked for the nearest documents once and for the rows of other candidates once more; both are
        repeated for queries whose lists do not prove the result yet. If more than 4,096 documents meet a filter, the
        engine also says which of the candidates do.
        """
        hybrid, k = with_words(queries), min(k, len(self))
        search = self.vectors.begin(query_filter, observe, MAX_SCANNED)
        results: dict[int, TopK] = {}
        pending, fetch, proven = [*range(len(hybrid))], k + _NEAREST, True
        while pending:
            nearest = search.nearest(hybrid.dense[pending], min(fetch, len(self)))
            lists = {
                row: _FusedList(self, hybrid[row : row + 1], k, positions, cosines)
                for row, positions, cosines in zip(pending, nearest.positions, nearest.scores, strict=True)
            }
            # A shorter list has every document.
            complete = nearest.positions.shape[1] < min(fetch, len(self)) or fetch >= len(self)
            if not complete:
                _add_likely(search, [*lists.values()])
            fetch *= 4
            widest = fetch > max(MAX_CANDIDATES, k + _NEAREST)
            proven = proven and (complete or not widest or all(listed.proven for listed in lists.values()))
            done = [row for row in pending if complete or widest or lists[row].proven]
            results |= {row: lists[row].top_k() for row in done}
            pending = [row for row in pending if row not in results]
        ordered = [results[row] for row in range(len(hybrid))]
        top = TopK(
            np.concatenate([result.scores for result in ordered]),
            np.concatenate([result.positions for result in ordered]),
        )
        approximate = bool(query_filter) and (search.approximate or not proven)
        return FoundPassages(top, search.candidates, approximate)


def collection_index(index: Index) -> EngineIndex | None:
    """Return the index of the vectors in an engine, without a lexical part; None if they are in this process."""
    vectors = vector_index(index)
    return vectors if isinstance(vectors, EngineIndex) else None


class _FusedList:
    """The scored documents of one query, and those that may still be among the k best.

    Attributes:
        candidates: (m,) int64 positions of documents that are not scored yet, those with the highest shares first.
        proven: Whether no document besides scored ones and candidates can be among the k best.

    Args:
        index: Index that scores.
        query: The query.
        k: Number of documents.
        positions: (c,) int64 documents with the highest cosines.
        cosines: (c,) float32 cosines, descending.
    """

    def __init__(
        self, index: EngineHybridIndex, query: HybridVectors, k: int, positions: Positions, cosines: Float32
    ) -> None:
        self._index, self._query, self._k = index, query, k
        self._last_cosine = float(cosines[-1]) if len(cosines) else 0.0
        self._positions = np.empty(0, np.int64)
        self._scores = np.empty(0, np.float32)
        self.candidates, self.proven = np.empty(0, np.int64), False
        self._score(positions, cosines)

    def propose(self, members: Positions | None) -> None:
        """List the candidates by their words, among some members, (m,) int64, or among all documents if None."""
        terms = self._query.terms[0]
        of_terms = self._index.lexical.term_scores(terms, MAX_POSTINGS)
        needed = self._needed_share() * of_terms.total - of_terms.omitted
        if needed <= 0 < of_terms.omitted:
            of_terms = self._index.lexical.term_scores(terms)
            needed = self._needed_share() * of_terms.total
        self.proven = needed > 0  # else a document without any of the words may be among the k best
        others = np.flatnonzero(of_terms.scores >= max(needed, np.finfo(np.float64).tiny))
        others = np.setdiff1d(others, self._positions, assume_unique=True)
        if members is not None:
            others = np.intersect1d(others, members, assume_unique=True)
        if len(others) > MAX_SCANNED:
            self.proven = False
            others = others[np.argpartition(-of_terms.scores[others], MAX_SCANNED)[:MAX_SCANNED]]
        self.candidates = others[np.argsort(-of_terms.scores[others], kind="stable")]

    def keep(self, positions: Positions) -> None:
        """Keep only the candidates at some positions."""
        self.candidates = self.candidates[np.isin(self.candidates, positions)]

    def rule_out(self) -> None:
        """Remove the candidates whose shares are too small for the current K-th score."""
        shares = self._index.lexical.shares(self._query.terms[0], self.candidates)
        self.candidates = self.candidates[shares >= self._needed_share()]

    def add(self, positions: Positions, vectors: Float32) -> None:
        """Score candidates, given their positions, (m,), and vectors, (m, d)."""
        self.candidates = self.candidates[~np.isin(self.candidates, positions)]
        self._score(positions, similarity(self._query.dense, vectors[None])[0])

    def top_k(self) -> TopK:
        """Return the k best scored documents, or all if there are fewer."""
        return best_row(self._positions, self._scores, self._k)

    def _score(self, positions: Positions, cosines: Float32) -> None:
        shares = self._index.lexical.shares(self._query.terms[0], positions)
        self._positions = np.concatenate([self._positions, positions])
        self._scores = np.concatenate([self._scores, self._index.fused(cosines, shares)])

    def _needed_share(self) -> float:
        """Return the share below which no document that the engine did not propose reaches the K-th score."""
        rank = len(self._scores) - self._k
        kth = float(np.partition(self._scores, rank)[rank])
        return (kth - ROUNDING - self._last_cosine) / self._index.weight


def _add_likely(search: EngineSearch, lists: list[_FusedList]) -> None:
    """Score the candidates with the highest shares, then the remaining ones if they are few enough."""
    for listed in lists:
        listed.propose(search.members)
    if search.has_unlisted_members:
        met = search.meeting(_union([listed.candidates for listed in lists]))
        for listed in lists:
            listed.keep(met)
    _score(search, lists, [listed.candidates[:_LIKELY] for listed in lists])
    for listed in lists:
        if listed.proven or search.has_unlisted_members:
            listed.rule_out()
        else:  # the K-th score has risen, so fewer documents may reach it
            listed.propose(search.members)
        listed.proven = listed.proven and len(listed.candidates) <= MAX_CANDIDATES
    remaining = [listed for listed in lists if listed.proven and len(listed.candidates)]
    _score(search, remaining, [listed.candidates for listed in remaining])


def _score(search: EngineSearch, lists: list[_FusedList], chosen: list[NDArray[np.int64]]) -> None:
    """Score chosen candidates of some queries after reading them together."""
    positions = _union(chosen)
    if not len(positions):
        return
    vectors = search.vectors(positions)
    for listed, own in zip(lists, chosen, strict=True):
        listed.add(own, vectors[np.searchsorted(positions, own)])


def _union(positions: list[NDArray[np.int64]]) -> Positions:
    """Return the distinct positions, ascending."""
    return np.unique(np.fromiter(chain.from_iterable(part.tolist() for part in positions), np.int64))
