"""A linear map of embeddings, for queries and documents or for queries alone, which ends in unit vectors again."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.retrieval.vectors.similarity import Float32

_SHORTEST = 1e-12  # the length below which torch.nn.functional.normalize takes a vector for zero


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
        """Round a map to float32.

        Args:
            weight: (d, d).
            bias: (d,).
        """
        return cls(weight.astype(np.float32), bias.astype(np.float32))

    @classmethod
    def identity_of_queries(cls, dimension: int) -> Self:
        """Return the map of queries alone that changes none of them.

        Args:
            dimension: d.
        """
        weight = np.eye(dimension, dtype=np.float32)
        return cls(weight, np.zeros(dimension, dtype=np.float32), keeps_documents=True)

    def apply_to_documents(self, vectors: Float32) -> Float32:
        """Return the vectors of documents as they are searched, (n, d) float32.

        Args:
            vectors: (n, d) float32.
        """
        return vectors if self.keeps_documents else self.apply(vectors)

    def apply(self, vectors: Float32) -> Float32:
        """Return the images of vectors, (n, d) float32 of unit length.

        Args:
            vectors: (n, d) float32.
        """
        with threadpool_limits(limits=1):  # the last bits of a product depend on how it is split
            images = vectors @ self.weight.T + self.bias
        lengths = np.linalg.norm(images, axis=1, keepdims=True)
        unit: Float32 = (images / np.maximum(lengths, _SHORTEST)).astype(np.float32)
        return unit

    def then(self, weight: Float32) -> Self:
        """Return this map followed by another one without a bias.

        The length between the two does not matter, as the second keeps directions and the last step normalises.

        Args:
            weight: (d, d) float32.
        """
        second = weight.astype(np.float64)
        with threadpool_limits(limits=1):
            found = self.from_float64(second @ self.weight, second @ self.bias)
            return replace(found, keeps_documents=self.keeps_documents)
