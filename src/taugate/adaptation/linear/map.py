"""A linear map of embeddings to unit vectors, for queries and documents or for queries alone."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.retrieval.vectors.similarity import Float32

_MIN_LENGTH = 1e-12  # torch.nn.functional.normalize treats a shorter vector as zero


@dataclass(frozen=True)
class LinearMap:
    """x → (A·x + b) / |A·x + b|.

    Attributes:
        weight: A, (d, d) float32.
        bias: b, (d,) float32.
        keeps_documents: Whether only queries pass the map.
    """

    weight: Float32
    bias: Float32
    keeps_documents: bool = False

    @classmethod
    def from_float64(cls, weight: NDArray[np.float64], bias: NDArray[np.float64]) -> Self:
        """Round a map with (d, d) weight and (d,) bias to float32."""
        return cls(weight.astype(np.float32), bias.astype(np.float32))

    @classmethod
    def identity_of_queries(cls, dimension: int) -> Self:
        """Return the identity map for queries alone."""
        weight = np.eye(dimension, dtype=np.float32)
        return cls(weight, np.zeros(dimension, dtype=np.float32), keeps_documents=True)

    def apply_to_documents(self, vectors: Float32) -> Float32:
        """Return the vectors of documents for the search, (n, d) float32."""
        return vectors if self.keeps_documents else self.apply(vectors)

    def apply(self, vectors: Float32) -> Float32:
        """Return the images of (n, d) float32 vectors, of unit length."""
        with threadpool_limits(limits=1):  # the last bits of a product depend on how it is split
            images = vectors @ self.weight.T + self.bias
        lengths = np.linalg.norm(images, axis=1, keepdims=True)
        unit: Float32 = (images / np.maximum(lengths, _MIN_LENGTH)).astype(np.float32)
        return unit

    def then(self, weight: Float32) -> Self:
        """Return this map followed by a (d, d) float32 map without a bias.

        The length between the two does not matter, because the second map is linear and the last step normalises.
        """
        second = weight.astype(np.float64)
        with threadpool_limits(limits=1):
            combined = self.from_float64(second @ self.weight, second @ self.bias)
            return replace(combined, keeps_documents=self.keeps_documents)
