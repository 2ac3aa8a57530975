"""Projections beside query PCA, for comparison only: what each is fitted on, and how."""

from collections.abc import Callable

import numpy as np

from taugate.calibration.gate.projection import fit_pca, retained
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.similarity import Float32

# Of queries and documents; documents may be had in any number, queries of other folds only.
Fit = Callable[[Float32, Float32, np.random.Generator], Projection]
RETENTION = 0.9


def _queries(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    fitted = fit_pca(queries)
    return fitted.projection.first(retained(RETENTION, queries.shape[1], fitted.rank))


def _both(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    return _queries(np.concatenate([queries, documents]), documents, rng)


def _random(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    """Remove a random 10 % of the dimensions (Appendix D)."""
    kept = np.sort(rng.permutation(queries.shape[1])[: int(RETENTION * queries.shape[1])])
    return Projection(np.zeros(queries.shape[1]), np.eye(queries.shape[1])[:, kept])


def _standardised(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    return Projection(documents.mean(axis=0, dtype=np.float64), np.diag(1 / documents.std(axis=0, dtype=np.float64)))


def _whitened(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    centred = documents - documents.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    return Projection(documents.mean(axis=0, dtype=np.float64), vectors / np.sqrt(np.maximum(values, 1e-9)))


def _without_top(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    """The mean and the ⌈d / 100⌉ first components of the documents are removed (Mu and Viswanath's all-but-the-top)."""
    pca = fit_pca(documents)
    top = pca.projection.components[:, : -(-documents.shape[1] // 100)]
    return Projection(pca.projection.mean, np.eye(documents.shape[1]) - top @ top.T)


FITS: dict[str, Fit] = {
    "query PCA, .9": _queries,
    "query + document PCA, .9": _both,
    "random, .9": _random,
    "standardised": _standardised,
    "whitened": _whitened,
    "top components removed": _without_top,
}
