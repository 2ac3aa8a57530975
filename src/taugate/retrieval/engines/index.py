"""An index whose vectors and documents are in an engine: it proposes, `similarity` scores."""

import time

import numpy as np
from numpy.typing import NDArray

from taugate.errors import EngineUnavailable
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.engine import Candidates, Collection, Positions, Rows
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE, best_of, brute_force_top_k
from taugate.retrieval.index.passages import Candidate, Found, Observe, unobserved
from taugate.retrieval.index.top_k import DocumentSubset, TopK
from taugate.retrieval.index.widening import widened_top_k
from taugate.retrieval.vectors.similarity import Float32, pair_similarity, similarity

# Documents that meet a filter, of which all are read where the engine finds too few of them: some 10 MB at 384
# dimensions and 1 KB of text.
_FEW = 4096


class EngineVectors:
    """The vectors of a collection, (N, d), read by position as an array is; a Vectors of retrieval.vectors.

    Attributes:
        collection: That holds them.
        rows: N.
        seconds: How long a read may take.
    """

    def __init__(self, collection: Collection, rows: int, seconds: float) -> None:
        self.shape: tuple[int, ...] = (rows, collection.dimension)
        self._collection, self._seconds = collection, seconds

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        distinct, places = np.unique(positions, return_inverse=True)
        vectors = self._collection.fetch(distinct, time.monotonic() + self._seconds).vectors
        return vectors[places.reshape(positions.shape)]


class EngineIndex:
    """N documents in a collection of an engine; an Index.

    Scores are those of every other index, to the bit, as they are computed here from the vectors that the engine
    returns. Which documents are found depends on its graph, as in ApproximateIndex.

    Attributes:
        collection: That holds them.
        rows: N.
        seconds: How long one search may take, with all that it asks again.
    """

    def __init__(self, collection: Collection, rows: int, seconds: float) -> None:
        self.vectors = EngineVectors(collection, rows, seconds)
        self._collection, self._seconds = collection, seconds

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return self.vectors.shape[0]

    def score(self, queries: Float32, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(queries, self.vectors, positions)

    def search(self, queries: Float32, k: int) -> TopK:
        """Return the min(k, N) most similar of the documents proposed; ties go to the lower position.

        Args:
            queries: (n, d) float32 of unit length.
            k: How many.

        Raises:
            EngineUnavailable: : never a list that is shorter than asked, as a collection gives that is being loaded.
            ReleaseError: : never a list that is shorter than asked, as a collection gives that is being loaded.
        """
        return self.find(queries, k).top

    def search_within(self, queries: Float32, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; reads the vectors of all M documents, so it is for small subsets."""
        members = within.positions
        found = [brute_force_top_k(self, queries[row : row + 1], k, members) for row in range(len(queries))]
        scores, positions = zip(*found, strict=True)
        return TopK(np.stack(scores), np.stack(positions))

    def find(self, queries: Float32, k: int, wanted: Filter = (), observe: Observe = unobserved) -> Found:
        """Search as `search` does, among the documents that meet a filter, which the engine evaluates.

        Where at most k + SPARE documents meet it, all of them are scored, and the result is exact. So it is where the
        engine finds too few, as documents far from a query may be out of reach in its graph, and up to 4,096 meet it.

        Args:
            queries: (n, d) float32 of unit length.
            k: How many; fewer where fewer documents meet the filter.
            wanted: The filter; empty for all documents.
            observe: Receives the stages "engine" and "rescore", each as often as the engine is asked.

        Raises:
            InputError: For a filter that no engine can compare exactly, EngineUnavailable and ReleaseError.
        """
        deadline = time.monotonic() + self._seconds
        count, candidates = len(self), dict[int, Candidate]()
        k = min(k, count)
        if wanted and (found := self._all_of(queries, k, wanted, k + SPARE, deadline, observe)):
            return found

        def best(some: Float32, k: int, fetch: int) -> tuple[TopK, Float32]:
            start = time.perf_counter()
            proposed = self._collection.propose(some, fetch, wanted, deadline)
            answered = time.perf_counter()
            candidates.update(_by_position(proposed))
            ranked = _ranked(some, proposed, k)
            observe("engine", answered - start)
            observe("rescore", time.perf_counter() - answered)
            return ranked

        top = widened_top_k(best, queries, k, k + SPARE, count)
        if np.isneginf(top.scores[:, -1]).any():
            if wanted and (found := self._all_of(queries, k, wanted, _FEW, deadline, observe)):
                return found
            raise EngineUnavailable(
                f"{self._collection.name}: proposes fewer than {k} documents even of {MAX_CANDIDATES} that it was "
                "asked for; check that it is loaded and complete, or search more broadly"
            )
        return Found(top, candidates, approximate=bool(wanted))

    def read(self, positions: Positions) -> Rows:
        """Return the rows at positions, (m,) int64, all distinct.

        Raises:
            EngineUnavailable: .
            ReleaseError: .
        """
        return self._collection.fetch(positions, time.monotonic() + self._seconds)

    def find_id(self, document_id: str) -> Positions:
        """Return where the passage with an id is, else the chunks of the document with it, (m,) int64 ascending."""
        return self._collection.find(document_id, time.monotonic() + self._seconds)

    def _all_of(
        self, queries: Float32, k: int, wanted: Filter, most: int, deadline: float, observe: Observe
    ) -> Found | None:
        """Score all documents that meet a filter; None where these are more than `most`."""
        start = time.perf_counter()
        members = self._collection.where(wanted, most + 1, deadline)
        observe("engine", time.perf_counter() - start)
        if len(members) > most:
            return None
        start = time.perf_counter()
        rows = self._collection.fetch(members, deadline)
        observe("engine", time.perf_counter() - start)
        # One query at a time: together they would take a copy of the vectors each.
        scores = np.concatenate([similarity(query[None], rows.vectors[None]) for query in queries])
        top = best_of(np.broadcast_to(members[None], scores.shape), scores, k)
        contents = map(Candidate, rows.vectors, rows.documents)
        return Found(top, dict(zip(members.tolist(), contents, strict=True)))


def _by_position(proposed: Candidates) -> dict[int, Candidate]:
    return {
        position: Candidate(vector, proposed.documents[position])
        for row, vectors in zip(proposed.positions.tolist(), proposed.vectors, strict=True)
        for position, vector in zip(row, vectors, strict=True)
        if position >= 0
    }


def _ranked(queries: Float32, proposed: Candidates, k: int) -> tuple[TopK, Float32]:
    """Rank candidates by similarity; see widening.Best."""
    order = np.argsort(proposed.positions, axis=1, kind="stable")
    rows = np.arange(len(order))[:, None]
    positions = proposed.positions[rows, order]
    scores = similarity(queries, proposed.vectors[rows, order])
    scores[positions < 0] = -np.inf
    return best_of(positions, scores, k), scores.min(axis=1)
