"""The outcome of each labelled query at calibration, with which that of a later release is compared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.storage.tensors import read_tensors, write_tensors

_TYPES = {
    "query": np.uint64,
    "cluster": np.int64,
    "hit": np.bool_,
    "hit_kept": np.bool_,
    "ndcg": np.float64,
    "ndcg_kept": np.float64,
    "kept": np.int64,
    "unanswerable": np.uint64,
    "unanswerable_kept": np.int64,
}


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of q answerable queries, the held-out ones where there are any, and of u unanswerable ones.

    query: (q,) uint64, the first 64 bits of the SHA-256 of each text, by which two releases know their common queries.
    cluster: (q,) int64, equal for queries that share a relevant document. hit, hit_kept: (q,) bool, whether the top-K,
    and what the policy keeps of it, hold a relevant document. ndcg, ndcg_kept: (q,) float64, NDCG@K of the same. kept:
    (q,) int64, how many of the K are kept. unanswerable, unanswerable_kept: (u,), as query and kept.
    """

    query: NDArray[np.uint64]
    cluster: NDArray[np.int64]
    hit: NDArray[np.bool_]
    hit_kept: NDArray[np.bool_]
    ndcg: NDArray[np.float64]
    ndcg_kept: NDArray[np.float64]
    kept: NDArray[np.int64]
    unanswerable: NDArray[np.uint64]
    unanswerable_kept: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write the arrays to one safetensors file. Raises OSError."""
        write_tensors(path, {name: getattr(self, name) for name in _TYPES})

    @classmethod
    def load(cls, path: Path, k: int) -> Self:
        """Read what `save` wrote.

        path: the file. k: how many results a query has at most. Raises ReleaseError where it holds anything else.
        """
        arrays = read_tensors(path)
        if {*arrays} != {*_TYPES} or not _is_valid(cls(**arrays), k):
            raise ReleaseError(f"{path}: does not hold what calibration queries got; calibrate again")
        return cls(**arrays)


def _is_valid(read: Outcomes, k: int) -> bool:
    """Tell whether shapes and types are those written, and the numbers possible."""
    if read.query.ndim != 1 or not read.query.size or read.unanswerable.ndim != 1:
        return False
    for name, kind in _TYPES.items():
        array, rows = getattr(read, name), read.unanswerable if name.startswith("unanswerable") else read.query
        if array.dtype != kind or array.shape != rows.shape:
            return False
    return bool(
        all(((share >= 0) & (share <= 1 + 1e-9)).all() for share in (read.ndcg, read.ndcg_kept))
        and all(((kept >= 0) & (kept <= k)).all() for kept in (read.kept, read.unanswerable_kept))
        and read.cluster.min() >= 0
    )
