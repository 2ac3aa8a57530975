"""Embeddings moved into the subspace where the queries of a domain differ (query embeddings paper, Algorithm 1)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from taugate.errors import ReleaseError
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import read_tensors

# Rows projected at a time: a float64 copy of 25 MB at d = 384.
_BLOCK = 8192


@dataclass(frozen=True)
class Projection:
    """x ↦ (x − μ)W, made a unit vector again, so that the inner product afterwards is the cosine (Alg. 1, lines 4, 7).

    mean: μ, (d,) and components: W, (d, d'), both float64.
    """

    mean: NDArray[np.float64]
    components: NDArray[np.float64]

    @property
    def dimensions(self) -> tuple[int, int]:
        """Before and after."""
        return self.components.shape[0], self.components.shape[1]

    def apply(self, vectors: Float32) -> Float32:
        """Unit vectors (n, d') float32 of unit vectors (n, d) float32, queries and documents alike.

        Computed in float64 and rounded once. A zero vector, of a text without a token, stays zero: it is similar to
        nothing. So does a vector that is μ.
        """
        projected = np.empty((len(vectors), self.components.shape[1]), dtype=np.float32)
        for start in range(0, len(vectors), _BLOCK):
            block = vectors[start : start + _BLOCK]
            moved = (block - self.mean) @ self.components
            length = np.linalg.norm(moved, axis=1, keepdims=True)
            there = (length > 0) & block.any(axis=1, keepdims=True)
            projected[start : start + _BLOCK] = np.divide(moved, length, out=np.zeros_like(moved), where=there)
        return projected

    def first(self, dimension: int) -> Self:
        """The same with the first components only: those of the largest variance."""
        return type(self)(self.mean, self.components[:, :dimension])

    def save(self, path: Path) -> None:
        """Write both arrays, and nothing else, to one safetensors file."""
        path.write_bytes(save({"mean": self.mean, "components": np.ascontiguousarray(self.components)}))

    @classmethod
    def load(cls, path: Path, before: int, after: int) -> Self:
        """Read what `save` wrote. Raises ReleaseError when it is no projection from `before` to `after` dimensions."""
        arrays = read_tensors(path)
        expected = {"mean": (before,), "components": (before, after)}
        shapes = {name: array.shape for name, array in arrays.items()}
        if shapes != expected or not all(
            array.dtype == np.float64 and np.isfinite(array).all() for array in arrays.values()
        ):
            raise ReleaseError(f"{path}: is no projection from {before} to {after} dimensions; calibrate again")
        return cls(arrays["mean"], arrays["components"])
