"""Linear maps of cached embeddings to unit vectors, for queries and documents or for queries alone, and whitening.

Soft whitening: the common direction of all embeddings is subtracted, and strong principal components are damped. Full
whitening gives every component a variance of 1 (Su et al., "Whitening Sentence Representations for Better Semantics and
Faster Retrieval", 2021). That is too much for some corpora and too little for others, so the share of the mean and the
exponent are chosen on validation queries.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.policy.arrays import Float32, moments
from taugate.release.adaptation import WhiteningRecord

_MIN_LENGTH = 1e-12  # torch.nn.functional.normalize treats a shorter vector as zero

CENTRINGS = (1.0, 0.5, 0.0)
EXPONENTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
_RIDGE = 1e-3  # added to each variance, as a share of their mean, so that components without variance are not amplified


@dataclass(frozen=True)
class LinearMap:
    """x → (A·x + b) / |A·x + b|.

    Attributes:
        weight: A, (d, d) float32.
        bias: b, (d,) float32.
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


@dataclass(frozen=True)
class PrincipalComponents:
    """The mean and the principal components of embeddings.

    Attributes:
        mean: (d,) float64.
        axes: (d, d) float64, a component in each column.
        variances: (d,) float64.
    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    variances: NDArray[np.float64]

    @classmethod
    def fit(cls, vectors: Float32) -> Self:
        """Compute the components of (n, d) float32 vectors, n ≥ 2."""
        with threadpool_limits(limits=1):
            mean, scatter = moments(vectors)
            variances, axes = np.linalg.eigh(scatter / (len(vectors) - 1))
        return cls(mean, axes, np.maximum(variances, 0.0))

    def whitening(self, chosen: WhiteningRecord) -> LinearMap:
        """Return the map of a centring and an exponent; the strongest component keeps its scale."""
        variances = self.variances + _RIDGE * self.variances.mean()
        scales = (variances / variances.max()) ** -chosen.exponent
        with threadpool_limits(limits=1):
            weight = (self.axes * scales) @ self.axes.T
            return LinearMap.from_float64(weight, -chosen.centring * (weight @ self.mean))
