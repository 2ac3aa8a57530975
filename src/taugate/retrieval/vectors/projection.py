"""Projection of embeddings onto the subspace in which a domain's queries vary (query embeddings paper, Alg. 1)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import read_tensors, write_tensors

# Rows projected at a time: a float64 copy of 25 MB at d = 384.
_BLOCK = 8192


@dataclass(frozen=True)
class Projection:
    """The map x ↦ (x − μ)W, scaled to unit length, so that the inner product afterwards is the cosine.

    (Algorithm 1, lines 4 and 7.)

    Attributes:
        mean: μ, (d,) float64.
        components: W, (d, d') float64, in descending order of variance.
    """

    mean: NDArray[np.float64]
    components: NDArray[np.float64]

    @property
    def dimensions(self) -> tuple[int, int]:
        """Dimensions before and after, (d, d')."""
        return self.components.shape[0], self.components.shape[1]

    def apply(self, vectors: Float32) -> Float32:
        """Project unit vectors of queries or documents, (n, d) float32; returns unit vectors, (n, d') float32.

        Computed in float64 and rounded once. Zero vectors, of texts without a token, remain zero and are similar to
        nothing. A vector that equals μ becomes zero.
        """
        projected = np.empty((len(vectors), self.components.shape[1]), dtype=np.float32)
        for start in range(0, len(vectors), _BLOCK):
            block = vectors[start : start + _BLOCK]
            moved = (block - self.mean) @ self.components
            length = np.linalg.norm(moved, axis=1, keepdims=True)
            nonzero = (length > 0) & block.any(axis=1, keepdims=True)
            projected[start : start + _BLOCK] = np.divide(moved, length, out=np.zeros_like(moved), where=nonzero)
        return projected

    def first(self, dimension: int) -> Self:
        """Return the projection onto the first `dimension` components: those of the largest variance."""
        return type(self)(self.mean, self.components[:, :dimension])

    def save(self, path: Path) -> None:
        """Write both arrays to one safetensors file."""
        write_tensors(path, {"mean": self.mean, "components": self.components})

    @classmethod
    def load(cls, path: Path, before: int, after: int) -> Self:
        """Read the file that `save` wrote.

        Args:
            path: File with the arrays.
            before: d.
            after: d'.

        Raises:
            ReleaseError: If it holds anything else.
        """
        arrays = read_tensors(path)
        expected = {"mean": (before,), "components": (before, after)}
        shapes = {name: array.shape for name, array in arrays.items()}
        if shapes != expected or not all(
            array.dtype == np.float64 and np.isfinite(array).all() for array in arrays.values()
        ):
            raise ReleaseError(f"{path}: not a projection from {before} to {after} dimensions; calibrate again")
        return cls(arrays["mean"], arrays["components"])
