"""Search of an engine's collection by a score with a lexical part.

The engine proposes the documents with the highest cosines, and the postings in this process those whose share may be
high enough to reach the K-th score with a lower cosine. The rows of the latter are read by position, and everything is
scored here. If the engine's list is exact, so is the result, as in `index/hybrid.py`.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.engine import Positions
from taugate.retrieval.engines.index import EngineIndex, in_batches, score_members
from taugate.retrieval.engines.search import MAX_SCANNED, EngineSearch
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE
from taugate.retrieval.index.hybrid import HybridIndex, Scored, require_words, vector_index
from taugate.retrieval.index.lexical import LexicalCandidates, LexicalIndex
from taugate.retrieval.index.passages import Observe, unobserved
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.vectors.queries import HybridVectors, QueryVectors
from taugate.retrieval.vectors.similarity import Float32, similarity

# Sizes of the first lists beyond K: documents by cosine, and by share. Of 750 queries of five data sets, 17,063
# documents together, at K = 10 and w = 1, these lists prove 94 % of the results, and have 98.5 % of the results; with
# lists of 16 it is 54 % and 78 %.
NEAREST, _LIKELY = 4 * SPARE, 64
# If at most this many documents meet a filter, their positions are requested first; for four times as many, PostgreSQL
# took 12 ms instead of 4.
_LISTED = 1024
_NONE = LexicalCandidates(np.empty(0, np.int64), np.empty(0), complete=True)


class EngineSearchable(Index, Protocol):
    """An index of vectors in an engine."""

    def begin(self, query_filter: Filter, observe: Observe, listed: int = 0) -> EngineSearch:
        """Begin a search; see EngineSearch for the parameters."""
        ...


@dataclass
class _Listed:
    """The documents of one query.

    Attributes:
        query: The query.
        last: Largest cosine of documents that the engine did not propose.
        scored: Scored documents.
        candidates: Other documents that may be among the best by their words, those with the highest bounds first.
        unlisted: Largest bound of further documents of this kind; −∞ if there are none.
    """

    query: HybridVectors
    last: float
    scored: Scored
    candidates: LexicalCandidates = _NONE
    unlisted: float = -np.inf


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
        return in_batches(lambda batch: self.find(batch, k), queries, min(k, len(self)))

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See EngineIndex.search_within."""
        return score_members(self, queries, k, within)

    def find(self, queries: QueryVectors, k: int, query_filter: Filter = (), observe: Observe = unobserved) -> TopK:
        """Search among the documents that meet a filter; see EngineIndex.find.

        The engine is asked for the nearest documents once, and for the rows of other candidates once more. Both are
        repeated for queries whose lists do not prove the result. If more than 1,024 documents meet a filter, the engine
        also says which of the candidates do.
        """
        hybrid, k = require_words(queries), min(k, len(self))
        search = self.vectors.begin(query_filter, observe, _LISTED)
        lists: dict[int, _Listed] = {}
        pending, fetch = [*range(len(hybrid))], min(k + NEAREST, len(self))
        while pending:
            nearest = search.nearest(hybrid.dense[pending], fetch)
            for row, positions, cosines in zip(pending, nearest.positions, nearest.scores, strict=True):
                lists[row] = self._listed(hybrid[row : row + 1], positions, cosines)
            if fetch == len(self) or nearest.positions.shape[1] < fetch:  # every document that meets the filter
                pending = []
                break
            self._add_candidates(search, [lists[row] for row in pending], k)
            pending = [row for row in pending if not self._is_proven(lists[row], k)]
            if 4 * fetch > MAX_CANDIDATES:
                break
            fetch = min(4 * fetch, len(self))
        best = [lists[row].scored.best(k) for row in range(len(hybrid))]
        # The result is exact if all documents that meet the filter were scored or ruled out.
        approximate = bool(query_filter) and (search.approximate or bool(pending))
        scores, positions = (np.stack([getattr(row, name) for row in best]) for name in ("scores", "positions"))
        return TopK(scores, positions, search.candidates, approximate)

    def _listed(self, query: HybridVectors, positions: Positions, cosines: Float32) -> _Listed:
        """Score the documents that the engine proposes for one query, (c,) each, those with the highest cosines."""
        scored = Scored(positions, cosines + self.weighted(query.terms[0], positions))
        return _Listed(query, float(cosines.min(initial=1.0)), scored)

    def _add_candidates(self, search: EngineSearch, lists: list[_Listed], k: int) -> None:
        """Score the documents with the highest bounds of their shares, then the remaining ones if they are few."""
        for listed in lists:
            self._list_candidates(listed, k, search.members)
        if search.has_unlisted_members:
            met = search.meeting(_union([listed.candidates.positions for listed in lists]))
            for listed in lists:
                listed.candidates = _chosen(listed.candidates, np.isin(listed.candidates.positions, met))
        for size in (_LIKELY, MAX_CANDIDATES):
            chosen = [self._take(listed, k, size) for listed in lists]
            positions = _union(chosen)
            vectors = search.vectors(positions)
            for listed, own in zip(lists, chosen, strict=True):
                cosines = similarity(listed.query.dense, vectors[np.searchsorted(positions, own)][None])[0]
                scores = cosines + self.weighted(listed.query.terms[0], own)
                listed.scored = listed.scored.joined(Scored(own, scores))

    def _list_candidates(self, listed: _Listed, k: int, members: Positions | None) -> None:
        """List documents whose words may bring them among the k best, among members, (m,) int64, or all if None."""
        found = self.lexical.reaching(listed.query.terms[0], self._needed(listed, k))
        others = ~np.isin(found.positions, listed.scored.positions)
        if members is not None:
            others &= np.isin(found.positions, members)
        found = _chosen(found, others)
        listed.candidates = found.most(MAX_SCANNED)
        listed.unlisted = listed.candidates.shares[-1] if len(found) > MAX_SCANNED else -np.inf

    def _take(self, listed: _Listed, k: int, size: int) -> Positions:
        """Remove up to `size` candidates from a list, and all that can no longer be among the k best; returns those."""
        reaching = np.count_nonzero(listed.candidates.shares >= self._needed(listed, k))
        taken = listed.candidates.positions[: min(size, reaching)]
        listed.candidates = _chosen(listed.candidates, slice(len(taken), reaching))
        return taken

    def _is_proven(self, listed: _Listed, k: int) -> bool:
        """Return whether no document that is not scored can be among the k best."""
        remaining = listed.candidates.shares
        return bool((remaining[0] if len(remaining) else listed.unlisted) < self._needed(listed, k))

    def _needed(self, listed: _Listed, k: int) -> float:
        return self.needed_share(listed.scored, k, listed.last)


def collection_index(index: Index) -> EngineIndex | None:
    """Return the index of the vectors in an engine, without a lexical part; None if they are in this process."""
    vectors = vector_index(index)
    return vectors if isinstance(vectors, EngineIndex) else None


def _chosen(candidates: LexicalCandidates, rows: NDArray[np.bool_] | slice) -> LexicalCandidates:
    return replace(candidates, positions=candidates.positions[rows], shares=candidates.shares[rows])


def _union(positions: list[Positions]) -> Positions:
    """Return the distinct positions, ascending."""
    return np.unique(np.concatenate(positions))
