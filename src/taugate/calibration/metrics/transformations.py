"""Transformations that make embeddings more isotropic (thresholds paper, §2.5 and Table 7).

Each is fitted on the documents and applies to queries as well; `Projection.apply` scales the result to unit length. The
paper finds that they raise isotropy and not accuracy.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.similarity import CorpusVectors, moments

_MIN_SHARE = 1e-9  # of the largest variance: float32 vectors vary by less in directions that they do not use


def standardisation(documents: CorpusVectors) -> Projection:
    """Subtract the mean, and give each coordinate a standard deviation of 1 (Timkey and van Schijndel 2021)."""
    mean, scatter = moments(documents)
    return Projection(mean, np.diag(_scales(np.diag(scatter) / documents.shape[0])))


def full_whitening(documents: CorpusVectors) -> Projection:
    """Subtract the mean, and give each principal component a variance of 1 (Jung et al. 2023)."""
    mean, variances, axes = _components(documents)
    return Projection(mean, axes * _scales(variances))


def top_removal(documents: CorpusVectors) -> Projection:
    """Subtract the mean and the first ⌈d / 100⌉ principal components (Mu et al. 2017, who propose about d / 100)."""
    mean, _, axes = _components(documents)
    top = axes[:, -math.ceil(len(mean) / 100) :]
    return Projection(mean, np.eye(len(mean)) - top @ top.T)


TRANSFORMATIONS: Mapping[str, Callable[[CorpusVectors], Projection]] = {
    "standardised": standardisation,
    "whitened": full_whitening,
    "top components removed": top_removal,
}


def _components(documents: CorpusVectors) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return mean, (d,), variances, (d,) ascending, and the axes in the columns of (d, d)."""
    with threadpool_limits(limits=1):
        mean, scatter = moments(documents)
        variances, axes = np.linalg.eigh(scatter / documents.shape[0])
    return mean, variances, axes


def _scales(variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / σ of (d,) variances, and 0 for directions without variance."""
    used = variances > _MIN_SHARE * variances.max()
    return np.divide(1.0, np.sqrt(np.where(used, variances, 1.0)), out=np.zeros_like(variances), where=used)
