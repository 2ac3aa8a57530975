"""The similarity distributions of the calibration queries, with which live ones are compared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import read_tensors, write_tensors


@dataclass(frozen=True)
class Reference:
    """Similarities of q calibration queries with their top-K, correct and random documents.

    top: (q, K) float32 S_topK, best first. correct: (q,) float32 S_corr. random: (q,) float32 S_rand. kept: (q,) int64,
    how many of the K the policy keeps. correct_kept: (q,) bool, whether the correct document is one of them, so that a
    user can have seen it.
    """

    top: Float32
    correct: Float32
    random: Float32
    kept: NDArray[np.int64]
    correct_kept: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.correct)

    def save(self, path: Path) -> None:
        """Write the arrays to one safetensors file. Raises OSError."""
        write_tensors(path, {name: getattr(self, name) for name in self.__dataclass_fields__})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote. Raises ReleaseError where it holds anything else."""
        arrays = read_tensors(path)
        if {*arrays} != {*cls.__dataclass_fields__} or not _is_valid(cls(**arrays)):
            raise ReleaseError(f"{path}: does not hold the similarities of calibration queries; calibrate again")
        return cls(**arrays)


def _is_valid(read: Reference) -> bool:
    """Tell whether shapes and types are those written, and the numbers finite."""
    if read.top.ndim != 2 or not read.top.size:
        return False
    queries, k = read.top.shape
    similarities = (read.top, read.correct, read.random)
    flat = (read.correct, read.random, read.kept, read.correct_kept)
    return bool(
        all(array.shape == (queries,) for array in flat)
        and all(array.dtype == np.float32 and np.isfinite(array).all() for array in similarities)
        and read.kept.dtype == np.int64
        and read.correct_kept.dtype == np.bool_
        and ((read.kept >= 0) & (read.kept <= k)).all()
    )
