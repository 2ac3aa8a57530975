"""Exact top-K by cosine similarity over FAISS, with ties to the lower document position."""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.errors import ReleaseError
from retrieval.similarity import Float32, pair_similarity, rounding_bound, similarity

# Candidates fetched beyond K on the first try: enough that a second try is rare (ties of more than 16 documents).
_SPARE = 16
# Above so many candidates for one query, every document is scored instead: a corpus of copies of one text.
_MOST_CANDIDATES = 1024
_GPU_LIMIT = 2048  # FAISS on a GPU returns at most 2,048 neighbours (faiss wiki, "Faiss on the GPU", limitations).


@dataclass(frozen=True)
class TopK:
    """The K most similar documents of n queries, best first; float32 (n, K) scores and int64 (n, K) positions."""

    scores: Float32
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)


class FlatIndex:
    """Every document vector, compared with every query.

    FAISS proposes candidates, `similarity` scores them: the result does not depend on batch size, threads or device.
    """

    kind = "flat"

    def __init__(self, index: Any) -> None:  # noqa: ANN401 (faiss has no types)
        self._index = index
        self.vectors = _stored_vectors(index)
        self._gpu = _on_gpu(index)
        self._bound = rounding_bound(index.d)

    @classmethod
    def build(cls, vectors: Float32) -> Self:
        """vectors: (N, d) float32 of unit length, N ≥ 1."""
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        return cls(index)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Map an index file into memory. Raises ReleaseError when FAISS cannot read it or it is of another kind."""
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise ReleaseError(f"{path}: FAISS cannot read this index; calibrate again") from error
        if not isinstance(index, faiss.IndexFlatIP) or not index.ntotal or not index.d:
            raise ReleaseError(f"{path}: holds no flat inner-product index with vectors; calibrate again")
        return cls(index)

    def save(self, path: Path) -> None:
        """Write FAISS's own format. Raises OSError."""
        try:
            faiss.write_index(self._index, str(path))
        except RuntimeError as error:  # FAISS says so for a full disk, too
            raise OSError(f"{path}: {error}") from error
        expected = faiss.serialize_index(faiss.IndexFlatIP(self.dimension)).nbytes + self.vectors.nbytes
        if path.stat().st_size != expected:  # what fails when FAISS closes the file, it does not say
            raise OSError(f"{path}: {path.stat().st_size} bytes were written of {expected}")

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._index.d)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: Float32, k: int) -> TopK:
        """The min(k, N) most similar documents of each query.

        queries: (n, d) float32 of unit length. Ties in similarity go to the lower position.
        """
        k = min(k, len(self))
        scores = np.empty((len(queries), k), dtype=np.float32)
        positions = np.empty((len(queries), k), dtype=np.int64)
        pending = np.arange(len(queries))
        fetch = k + _SPARE
        while len(pending) and fetch <= max(_MOST_CANDIDATES, k + _SPARE):
            fetch = min(fetch, len(self))
            top, proven = self._candidates(queries[pending], k, fetch)
            scores[pending], positions[pending] = top.scores, top.positions
            pending = pending[~proven]
            fetch *= 4
        for row in pending:
            scores[row], positions[row] = self._among_all(queries[row : row + 1], k)
        return TopK(scores, positions)

    def _among_all(self, query: Float32, k: int) -> tuple[Float32, NDArray[np.int64]]:
        """Top k of one query, (1, d), by scoring every document."""
        parts = [similarity(query, part[None])[0] for part in np.array_split(self.vectors, len(self) // 4096 + 1)]
        scores = np.concatenate(parts)
        best = np.argsort(-scores, kind="stable")[:k]
        return scores[best], best

    def _candidates(self, queries: Float32, k: int, fetch: int) -> tuple[TopK, NDArray[np.bool_]]:
        """Top k of `fetch` candidates, and for which queries no document left out can belong to it."""
        searcher = self._gpu if self._gpu is not None and fetch <= _GPU_LIMIT else self._index
        rough, found = searcher.search(np.ascontiguousarray(queries), fetch)
        found = np.sort(found, axis=1)  # by position, so that a stable sort by score keeps the lower one of a tie
        exact = pair_similarity(queries, self.vectors, found)
        order = np.argsort(-exact, axis=1, kind="stable")[:, :k]
        top = TopK(np.take_along_axis(exact, order, 1), np.take_along_axis(found, order, 1))
        proven = rough[:, -1] + self._bound < top.scores[:, -1] if fetch < len(self) else np.full(len(queries), True)
        return top, proven


def _stored_vectors(index: Any) -> Float32:  # noqa: ANN401
    """FAISS's own storage as a read-only array (N, d): nothing is copied, and it keeps the index alive.

    FAISS's rev_swig_ptr gives such a view too, but one that reads freed memory once the index is gone.
    """
    memory = (ctypes.c_float * (index.ntotal * index.d)).from_address(int(index.get_xb()))
    memory.owner = index
    vectors = np.frombuffer(memory, dtype=np.float32).reshape(-1, index.d)
    vectors.flags.writeable = False
    return vectors


def _on_gpu(index: Any) -> Any:  # noqa: ANN401
    """A copy of `index` on the first GPU, or None where this faiss build or machine has none."""
    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        return None
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
