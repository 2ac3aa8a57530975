"""Query PCA: fits a PCA on the calibration queries, and uses the smallest projection that the gate accepts.

The query embeddings paper's Algorithm 1. A query is always tested with a projection that was not fitted on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from taugate.calibration.gate.accepted import RecordedProjection
from taugate.calibration.gate.baseline import GateState, RankingOutcomes, SearchTrial
from taugate.calibration.gate.gate import GateCandidate, judge
from taugate.calibration.gate.indexes import search_gain
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.metrics.splits import random_folds
from taugate.calibration.settings.settings import RETENTION, GateSettings
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.release.search_records import GateRecord, ProjectionRecord
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.queries import dense_of, map_dense
from taugate.retrieval.vectors.similarity import Float32

# From every component to half of them: gains "can continue even until the retention ratio is around 50 %" (query
# embeddings paper, Figure 4).
RETENTIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
FOLDS = 5  # a fit on 80 % of the queries is nearer to one on all of them than the two thirds of the paper's 3 folds


@dataclass(frozen=True)
class FittedPCA:
    """A projection on all components of the data.

    Attributes:
        projection: Projection that keeps all components, by falling variance.
        explained: (rank,) float64, variance along each component as a share of the total.
    """

    projection: Projection
    explained: NDArray[np.float64]

    @property
    def rank(self) -> int:
        """Number of components, at most d and at most one less than the number of fitted vectors."""
        return len(self.explained)


def fit_pca(vectors: Float32) -> FittedPCA:
    """Fit a PCA.

    The components are eigenvectors of the sample covariance, by falling eigenvalue, with signs fixed by scikit-learn.
    One thread makes the same data give the same bits. n vectors around their mean span n − 1 directions, which limits
    the components if there are fewer queries than dimensions (Appendix E).

    Args:
        vectors: (n, d) float32 embeddings, n ≥ 2: queries for query PCA, queries and documents for the paper's second
            variant.
    """
    count = min(len(vectors) - 1, vectors.shape[1])
    with threadpool_limits(limits=1):
        pca = PCA(n_components=count, svd_solver="covariance_eigh").fit(vectors.astype(np.float64))
    components: NDArray[np.float64] = np.ascontiguousarray(pca.components_.T)
    return FittedPCA(Projection(pca.mean_, components), pca.explained_variance_ratio_)


def retained(retention: float, dimension: int, rank: int) -> int:
    """Return D' = ⌊r·d⌋ (query embeddings paper, eq. 4), at least 1 and at most the number of components.

    Args:
        retention: r, the share of dimensions to keep, in (0, 1].
        dimension: d, the dimension of the embeddings.
        rank: Number of components.
    """
    return max(1, min(int(retention * dimension + 1e-9), rank))


def cross_validated(
    trial: SearchTrial,
    fitting: NDArray[np.int64],
    retentions: Sequence[float],
    rng: np.random.Generator,
    folds: int = FOLDS,
) -> list[RankingOutcomes]:
    """Answer every query with a PCA that was not fitted on it.

    A fitting query is answered with a PCA of the fitting queries in the remaining folds, any other with one of all.

    Args:
        trial: The q queries.
        fitting: Positions of the queries for fitting.
        retentions: Shares of the dimensions to keep.
        rng: Generator that draws the folds.
        folds: Number of folds.

    Returns:
        The outcomes of the q queries at each retention.

    Raises:
        ValueError: If there are fewer fitting queries than folds.
    """
    count, dimension = trial.vectors.shape
    by_retention = [RankingOutcomes(np.empty(count), np.empty(count)) for _ in retentions]
    parts = [(fitting[others], fitting[fold]) for others, fold in random_folds(len(fitting), folds, rng)]
    parts.append((fitting, np.setdiff1d(np.arange(count), fitting)))
    for fitted, fold in parts:
        if not len(fold):
            continue
        pca = fit_pca(dense_of(trial.vectors)[fitted])
        queries = [trial.queries[position] for position in fold.tolist()]
        for outcomes, retention in zip(by_retention, retentions, strict=True):
            projection = pca.projection.first(retained(retention, dimension, pca.rank))
            vectors, documents = map_dense(trial.vectors[fold], projection.apply), projection.apply(trial.documents)
            of_fold = SearchTrial.build(queries, vectors, documents, trial.k, trial.parents, trial.lexical).outcomes()
            outcomes.accuracy[fold], outcomes.ndcg[fold] = of_fold.accuracy, of_fold.ndcg
    return by_retention


def try_projection(
    inputs: CalibrationInputs, baseline: SearchTrial, state: GateState, gate: GateSettings
) -> tuple[list[GateRecord], GateState]:
    """Test query PCA at each requested retention, and take the smallest of the best accepted projections.

    Each calibration query is tested with a PCA of the other folds' queries; held-out ones are tested with the final
    projection, which is fitted on all calibration queries. Folds come from `numpy.random.default_rng([seed, 4])`.

    Args:
        inputs: The division of the queries, and the settings with projection and retention.
        baseline: The queries, not projected.
        state: Configuration accepted so far, without a projection.
        gate: Settings with the margin and the confidence.

    Returns:
        A record for each retention, and the new state, or `state` itself if the gate accepts no projection.
    """
    trial, cheaper, fitting = state.trial, inputs.settings.candidates, inputs.drawn.parts["calibration"].members
    retentions = RETENTIONS if cheaper.projection == "auto" else (cheaper.retention or RETENTION,)
    outcomes = cross_validated(trial, fitting, retentions, np.random.default_rng([inputs.settings.seed, 4]))
    pca = fit_pca(dense_of(trial.vectors)[fitting])
    sizes = [retained(retention, trial.vectors.shape[1], pca.rank) for retention in retentions]
    candidates = [
        GateCandidate(
            f"query-pca, retention {retention:g}", "projection", outcome, _gain(trial, pca.projection.first(size))
        )
        for retention, size, outcome in zip(retentions, sizes, outcomes, strict=True)
    ]
    records = judge(baseline.exact_outcomes, candidates, inputs.units, gate)
    best = _smallest_near_best(records, sizes)
    if best is None:
        return records, state
    record = ProjectionRecord(
        retention=retentions[best],
        dimension=sizes[best],
        queries=len(fitting),
        rank=pca.rank,
        explained_variance=float(pca.explained[: sizes[best]].sum()),
        folds=FOLDS,
    )
    fitted = RecordedProjection(pca.projection.first(sizes[best]), record)
    return records, state.with_projection(fitted, outcomes[best])


def _smallest_near_best(records: Sequence[GateRecord], sizes: Sequence[int]) -> int | None:
    """Return the row of the smallest accepted projection that is less than the margin below the best one."""
    accepted = {
        row: (record.accuracy.candidate, record.ndcg.candidate) for row, record in enumerate(records) if record.admitted
    }
    if not accepted:
        return None
    best = [max(values) - records[0].margin for values in zip(*accepted.values(), strict=True)]
    near = [row for row, values in accepted.items() if all(v >= limit for v, limit in zip(values, best, strict=True))]
    return min(near or accepted, key=lambda row: sizes[row])


def _gain(trial: SearchTrial, projection: Projection) -> dict[str, float]:
    return search_gain(trial, FlatIndex.build(projection.apply(trial.documents)), projection)
