"""What a similarity has to stand out from: how a query scores against any document, and a document against any query.

A score of 0.5 is a lot for one query and nothing for another. The mean and standard deviation of a query's similarity
with a random document need no random documents: with mean m and covariance C of the document vectors they are qᵀm and
√(qᵀCq). For a document the same two numbers, against the other documents and against queries, are computed once.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.vectors.moments import moments
from taugate.retrieval.vectors.similarity import Float32

Float64 = NDArray[np.float64]
# Below this a standard deviation is rounding: float32 vectors that are all the same.
_SMALLEST_DEVIATION = 1e-6


@dataclass(frozen=True)
class Background:
    """Statistics of similarity with random partners.

    mean: (d,) and covariance: (d, d) float64 of the document vectors; documents: (N, 5) float32, of each document mean
    and standard deviation of its similarity with documents, the same with queries, and log(1 + its length in bytes).
    """

    mean: Float64
    covariance: Float64
    documents: Float32

    @classmethod
    def of(cls, documents: Float32, queries: Float32, lengths: NDArray[np.int64]) -> Self:
        """documents: (N, d), queries: (q, d) unit vectors; lengths: (N,) bytes of text of each document."""
        mean, covariance = mean_and_covariance(documents)
        stored = np.column_stack(
            [
                *against(documents, mean, covariance),
                *against(documents, *mean_and_covariance(queries)),
                np.log1p(lengths),
            ]
        )
        return cls(mean, covariance, stored.astype(np.float32))

    def of_queries(self, queries: Float32) -> tuple[Float64, Float64]:
        """Mean and standard deviation of each query's similarity with a random document, (n,) each."""
        return against(queries, self.mean, self.covariance)


def mean_and_covariance(vectors: Float32) -> tuple[Float64, Float64]:
    """Mean (d,) and covariance (d, d) in float64."""
    mean, scatter = moments(vectors)
    return mean, scatter / len(vectors)


def against(vectors: Float32, mean: Float64, covariance: Float64) -> tuple[Float64, Float64]:
    """Mean and standard deviation of vᵀx for x with the given moments, for each v."""
    wide = vectors.astype(np.float64)
    variance = np.einsum("nd,nd->n", wide @ covariance, wide)
    deviation: Float64 = np.sqrt(np.maximum(variance, _SMALLEST_DEVIATION**2))
    return wide @ mean, deviation
