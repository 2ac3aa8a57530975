"""Searches, filters and reads the corpus of a release in an engine, also by a score with a lexical part.

The engine proposes the documents with the highest cosines, and the postings in this process those whose share may be
high enough to reach the K-th score with a lower cosine. The rows of the latter are read by position, and everything is
scored here. If the engine's list is exact, so is the result, as in `retrieval/index/hybrid.py`.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, HybridVectors, QueryVectors
from taugate.release.engine import EngineRecord
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.metadata import FieldTypes, holds
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines.engine import EngineAccess, MonitoredCollection, Positions, field_types, open_verified
from taugate.retrieval.engines.filters import check_comparable
from taugate.retrieval.engines.search import MAX_SCANNED, EngineIndex, EngineSearch, in_batches, score_members
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE
from taugate.retrieval.index.hybrid import HybridIndex, Scored, require_words, vector_index
from taugate.retrieval.index.lexical import LexicalCandidates
from taugate.retrieval.index.top_k import DocumentSubset, Index, Observe, TopK, unobserved
from taugate.retrieval.vectors import similarity

# Sizes of the first lists beyond K: documents by cosine, and by share. Of 750 queries of five data sets, 17,063
# documents together, at K = 10 and w = 1, these lists prove 94 % of the results, and have 98.5 % of the results; with
# lists of 16 it is 54 % and 78 %.
NEAREST, _LIKELY = 4 * SPARE, 64
# If at most this many documents meet a filter, their positions are requested first; for four times as many, PostgreSQL
# took 12 ms instead of 4.
_LISTED = 1024
_NONE = LexicalCandidates(np.empty(0, np.int64), np.empty(0), complete=True)

_BLOCK = 1024  # documents read at a time when iterating over all


class EngineSearchable(Index, Protocol):
    """An index of vectors in an engine."""

    def begin(self, query_filter: Filter, observe: Observe, listed: int = 0) -> EngineSearch:
        """Begin a search; see EngineSearch for the parameters."""
        ...


@dataclass
class _Listed:
    """The documents of one query."""

    query: HybridVectors
    last: float  # largest cosine of documents that the engine did not propose
    scored: Scored
    # other documents that may be among the best by their words, those with the highest bounds first
    candidates: LexicalCandidates = _NONE
    unlisted: float = -np.inf  # largest bound of further documents of this kind; −∞ if there are none


class EngineHybridIndex(HybridIndex):
    """N documents of a collection that are searched by cosine + weight · share; implements Index.

    Attributes:
        weight: Weight w of the share, above 0.
    """

    vectors: EngineSearchable

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See EngineIndex.search."""
        return in_batches(lambda batch: self.find(batch, k), queries, min(k, len(self)))

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See EngineIndex.search_within."""
        return score_members(self, queries, k, within)

    def find(self, queries: QueryVectors, k: int, query_filter: Filter = (), observe: Observe = unobserved) -> TopK:
        """Search among the documents that meet a filter; see EngineIndex.find."""
        # The engine is asked for the nearest documents once, and for the rows of other candidates once more. Both are
        # repeated for queries whose lists do not prove the result. If more than 1,024 documents meet a filter, the
        # engine also says which of the candidates do.
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


@dataclass(frozen=True)
class EnginePassages:
    """The passages of a collection; implements Passages."""

    index: EngineIndex  # searches and reads the collection
    fields: FieldTypes  # metadata fields that filters can name
    hybrid: EngineHybridIndex | None = None  # searches by a score with a lexical part; None if the score has none
    remote: bool = True

    def find(self, queries: QueryVectors, k: int, query_filter: Filter, observe: Observe = unobserved) -> TopK:
        """See Passages.find; EngineIndex.find says when results are approximate and which other errors occur."""
        self.check(query_filter)
        index = self.index if self.hybrid is None else self.hybrid
        return index.find(queries, k, query_filter, observe)

    def meets(self, query_filter: Filter, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See Passages.meets; reads the passages."""
        self.check(query_filter)
        documents = self.index.read(positions).documents if query_filter else [None] * len(positions)
        met = [document is None or holds(query_filter, document.metadata) for document in documents]
        return np.array(met, dtype=np.bool_)

    def check(self, query_filter: Filter) -> None:
        """See Fields.check; also raises InputError if an engine cannot compare a value exactly."""
        self.fields.check(query_filter)
        check_comparable(query_filter)

    def check_kinds(self, query_filter: Filter) -> None:
        """See Fields.check_kinds; also raises InputError if an engine cannot compare a value exactly."""
        self.fields.check_kinds(query_filter)
        check_comparable(query_filter)


class EngineDocuments(Sequence[Document]):
    """The documents of a collection, by position; implements Documents."""

    parents = None  # the engine does not say which chunks belong together

    def __init__(self, index: EngineIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, position: int) -> Document:  # type: ignore[override]  # no slices: a reader names positions
        """Return the document at a position."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        return self.at(np.array([position]))[0]

    def __iter__(self) -> Iterator[Document]:
        for start in range(0, len(self), _BLOCK):
            yield from self.at(np.arange(start, min(start + _BLOCK, len(self))))

    def at(self, positions: NDArray[np.int64]) -> list[Document]:
        """See Documents.at; sends one request."""
        distinct, places = np.unique(positions, return_inverse=True)
        documents = self._index.read(distinct).documents if len(distinct) else []
        return [documents[place] for place in places.tolist()]

    def positions(self, document_id: str) -> NDArray[np.int64]:
        """See Documents.positions."""
        return self._index.find_id(document_id)


@dataclass(frozen=True)
class EngineCorpus:
    """A checked collection and the views of it that a release uses."""

    index: EngineIndex
    passages: EnginePassages  # searches within filters
    documents: EngineDocuments
    watched: MonitoredCollection | None  # the monitored collection; None if it is not monitored

    def check(self) -> None:
        """Raise EngineUnavailable if the collection is monitored and known not to respond."""
        if self.watched is not None:
            self.watched.check()

    def close(self) -> None:
        """Stop monitoring the collection; a second call does nothing."""
        if self.watched is not None:
            self.watched.close()


def open_corpus(record: EngineRecord, dimension: int, access: EngineAccess) -> EngineCorpus:
    """Connect to the engine of a release and check its collection."""
    engine = access.connect(record.kind)
    verified = open_verified(engine, record, dimension, time.monotonic() + access.opening)
    watched = None if access.watch is None else access.watch(record, verified)
    index = EngineIndex(verified if watched is None else watched, record.rows, access.seconds)
    return EngineCorpus(index, EnginePassages(index, field_types(record)), EngineDocuments(index), watched)
