"""Soft whitening: the common direction of all embeddings is subtracted, and strong principal components are damped.

Full whitening gives every component a variance of 1 (Su et al., "Whitening Sentence Representations for Better
Semantics and Faster Retrieval", 2021). That is too much for some corpora and too little for others, so the share of the
mean and the exponent are chosen on validation queries.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.adaptation.linear.map import LinearMap
from taugate.retrieval.release.adaptation import WhiteningRecord
from taugate.retrieval.vectors.similarity import Float32, moments

CENTRINGS = (1.0, 0.5, 0.0)
EXPONENTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
_RIDGE = 1e-3  # added to each variance, as a share of their mean, so that components without variance are not amplified


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
