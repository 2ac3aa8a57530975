"""PCA of embeddings, by scikit-learn (query embeddings paper, §3.2 and §4)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class FittedPCA:
    """Every component that the data have, and the variance along each, (rank,), as a share of the whole."""

    projection: Projection
    explained: NDArray[np.float64]

    @property
    def rank(self) -> int:
        """Components there are: at most d, and one less than the vectors it was fitted on."""
        return len(self.explained)


def fit_pca(vectors: Float32) -> FittedPCA:
    """Fit on (n, d) embeddings, n ≥ 2: of queries for query PCA, of queries and documents for the paper's other one.

    W are eigenvectors of the sample covariance, by falling eigenvalue, signs fixed by scikit-learn; one thread, so that
    the same data give the same bits. n vectors around their mean span n − 1 directions: with fewer queries than
    dimensions there are no more components than that (Appendix E).
    """
    count = min(len(vectors) - 1, vectors.shape[1])
    with threadpool_limits(limits=1):
        pca = PCA(n_components=count, svd_solver="covariance_eigh").fit(vectors.astype(np.float64))
    components: NDArray[np.float64] = np.ascontiguousarray(pca.components_.T)
    return FittedPCA(Projection(pca.mean_, components), pca.explained_variance_ratio_)


def retained(retention: float, dimension: int, rank: int) -> int:
    """D' = ⌊r·d⌋ (eq. 4), no more than there are components, and one at least."""
    return max(1, min(int(retention * dimension + 1e-9), rank))
