"""The similarity distributions of the calibration queries, which live ones are compared with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from taugate.errors import ReleaseError
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import read_tensors


@dataclass(frozen=True)
class Reference:
    """Of q calibration queries.

    top: (q, K) S_topK, best first; correct: (q,) S_corr; random: (q,) S_rand; kept: (q,) int64, how many of the K the
    policy keeps; correct_kept: (q,) bool, whether the correct document is one of them, so that a user can have seen it.
    """

    top: Float32
    correct: Float32
    random: Float32
    kept: NDArray[np.int64]
    correct_kept: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.correct)

    def save(self, path: Path) -> None:
        """Write arrays, and nothing else, to one safetensors file."""
        path.write_bytes(save({name: np.ascontiguousarray(getattr(self, name)) for name in self.__dataclass_fields__}))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote. Raises ReleaseError when it is anything else."""
        arrays = read_tensors(path)
        if {*arrays} != {*cls.__dataclass_fields__} or not _fit(cls(**arrays)):
            raise ReleaseError(f"{path}: does not hold the similarities of calibration queries; calibrate again")
        return cls(**arrays)


def _fit(read: Reference) -> bool:
    """Shapes and types as written, numbers that are some."""
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
