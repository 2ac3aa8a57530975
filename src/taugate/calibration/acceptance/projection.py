"""Query PCA: fits a PCA on the calibration queries, and uses the smallest projection that the gate accepts.

The query embeddings paper's Algorithm 1, x ↦ (x − μ)W, and its §4, q ↦ qW, which loses less if what distinguishes
documents is along their mean. A query is always tested with a projection that was not fitted on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from taugate.calibration.acceptance.baseline import GateState, RecordedProjection, SearchTrial
from taugate.calibration.acceptance.cheaper_search import search_gain
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.settings import RETENTION
from taugate.evidence.acceptance import GateCandidate, RankingOutcomes, judge
from taugate.evidence.divisions import random_folds
from taugate.evidence.rules import MARGIN, GateSettings
from taugate.policy.arrays import Float32, dense_of, map_dense
from taugate.release.search_records import GateRecord, ProjectionKind, ProjectionRecord, projection_name
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.vectors import Projection

# From every component to half of them: gains "can continue even until the retention ratio is around 50 %" (query
# embeddings paper, Figure 4).
RETENTIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
FOLDS = 5  # a fit on 80 % of the queries is nearer to one on all of them than the two thirds of the paper's 3 folds
# Measured loss that passes for none if there is a choice: a tenth of a point. Without it, the smallest projection could
# lose up to the margin if none gains anything.
NO_LOSS = 0.001
# Documents that a PCA is fitted on: more hardly move a covariance of some hundred dimensions, and need memory.
_MOST_DOCUMENTS = 20_000


class Variant(NamedTuple):
    """A way to fit a projection and to apply it."""

    kind: ProjectionKind  # what the PCA is fitted on: queries, or queries and documents
    centred: bool  # whether it applies to x − μ as in Algorithm 1, or to x as in §4

    def fit(self, queries: Float32, documents: Float32) -> "FittedPCA":
        """Fit the PCA on (n, d) queries, and perhaps on (N, d) documents."""
        fitted = fit_pca(queries if self.kind == "query-pca" else np.concatenate((queries, documents)))
        if self.centred:
            return fitted
        return replace(fitted, projection=replace(fitted.projection, mean=np.zeros_like(fitted.projection.mean)))

    def candidates(self, retentions: Sequence[float]) -> list["ProjectionCandidate"]:
        """Return this variant at each retention; keeping all dimensions changes nothing if it is not centred."""
        return [ProjectionCandidate(self, retention) for retention in retentions if self.centred or retention < 1]


class ProjectionCandidate(NamedTuple):
    """A variant with r, the share of the dimensions that it keeps."""

    variant: Variant
    retention: float


QUERY_PCA = Variant("query-pca", centred=True)
# Of `auto`; the gate tests each as a sequence of candidates that keep less and less.
VARIANTS = (
    QUERY_PCA,
    Variant("query-pca", centred=False),
    Variant("query-document-pca", centred=True),
    Variant("query-document-pca", centred=False),
)


@dataclass(frozen=True)
class FittedPCA:
    """A projection on all components of the data."""

    projection: Projection  # projection that keeps all components, by falling variance
    explained: NDArray[np.float64]  # (rank,) float64, variance along each component as a share of the total

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
        vectors: (n, d) float32 embeddings, n ≥ 2: queries for query PCA, queries and documents for the paper's
            second variant.
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
    """
    return max(1, min(int(retention * dimension + 1e-9), rank))


def cross_validated(
    trial: SearchTrial,
    fitting: NDArray[np.int64],
    candidates: Sequence[ProjectionCandidate],
    rng: np.random.Generator,
    folds: int = FOLDS,
) -> list[RankingOutcomes]:
    """Answer every query with a PCA that was not fitted on it.

    A fitting query is answered with a PCA of the fitting queries in the remaining folds, any other with one of all.

    Args:
        fitting: Positions of the queries for fitting.
        candidates: Variants with the shares of the dimensions to keep.
        rng: Generator that draws the folds, and then the documents for fitting.

    Raises:
        ValueError: If there are fewer fitting queries than folds.
    """
    count, dimension = trial.vectors.shape
    by_candidate = [RankingOutcomes(np.empty(count), np.empty(count)) for _ in candidates]
    parts = [(fitting[others], fitting[fold]) for others, fold in random_folds(len(fitting), folds, rng)]
    parts.append((fitting, np.setdiff1d(np.arange(count), fitting)))
    documents = _some_documents(trial, rng)
    for fitted, fold in parts:
        if not len(fold):
            continue
        fits = _fits(candidates, dense_of(trial.vectors)[fitted], documents)
        queries = [trial.queries[position] for position in fold.tolist()]
        for outcomes, (variant, retention) in zip(by_candidate, candidates, strict=True):
            pca = fits[variant]
            projection = pca.projection.first(retained(retention, dimension, pca.rank))
            searched = SearchTrial.build(
                queries,
                map_dense(trial.vectors[fold], projection.apply),
                projection.apply(trial.documents),
                *(trial.k, trial.parents, trial.lexical),
            )
            of_fold = searched.outcomes()
            outcomes.accuracy[fold], outcomes.ndcg[fold] = of_fold.accuracy, of_fold.ndcg
    return by_candidate


def _some_documents(trial: SearchTrial, rng: np.random.Generator) -> Float32:
    count = len(trial.documents)
    if count <= _MOST_DOCUMENTS:
        return trial.documents
    return trial.documents[rng.choice(count, _MOST_DOCUMENTS, replace=False)]


def _fits(candidates: Sequence[ProjectionCandidate], queries: Float32, documents: Float32) -> dict[Variant, FittedPCA]:
    return {variant: variant.fit(queries, documents) for variant in dict.fromkeys(c.variant for c in candidates)}


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
    sequences = [v.candidates(retentions) for v in (VARIANTS if cheaper.projection == "auto" else (QUERY_PCA,))]
    tried = [candidate for sequence in sequences for candidate in sequence]
    rng = np.random.default_rng([inputs.settings.seed, 4])
    outcomes = cross_validated(trial, fitting, tried, rng)
    fits = _fits(tried, dense_of(trial.vectors)[fitting], _some_documents(trial, rng))
    sizes = [retained(retention, trial.vectors.shape[1], fits[variant].rank) for variant, retention in tried]
    gains = {
        size: _gain(trial, fits[variant].projection.first(size))
        for size, (variant, _) in zip(sizes, tried, strict=True)
    }
    records = judge(
        baseline.exact_outcomes,
        [
            GateCandidate(
                projection_name(variant.kind, retention, centred=variant.centred), "projection", outcome, gains[size]
            )
            for (variant, retention), size, outcome in zip(tried, sizes, outcomes, strict=True)
        ],
        inputs.units,
        gate,
        sequences=[len(sequence) for sequence in sequences],
    )
    best = _smallest_near_best(records, sizes, NO_LOSS if len(tried) > 1 else gate.margin or MARGIN)
    accepted = best is not None
    if best is None:
        if "projection" not in cheaper.accept:
            return records, state
        best = max(range(len(tried)), key=lambda row: records[row].ndcg.candidate)
    variant, retention = tried[best]
    record = ProjectionRecord(
        kind=variant.kind,
        centred=None if variant.centred else False,
        accepted=None if accepted else False,
        retention=retention,
        dimension=sizes[best],
        queries=len(fitting),
        rank=fits[variant].rank,
        explained_variance=float(fits[variant].explained[: sizes[best]].sum()),
        folds=FOLDS,
    )
    fitted = RecordedProjection(fits[variant].projection.first(sizes[best]), record)
    return records, state.with_projection(fitted, outcomes[best])


def _smallest_near_best(records: Sequence[GateRecord], sizes: Sequence[int], most_lost: float) -> int | None:
    """Return the row of the smallest accepted projection that is less than the margin below the best one.

    It is also not measured to lose more than `most_lost` of accuracy or NDCG@10.
    """
    accepted = {
        row: (record.accuracy.candidate, record.ndcg.candidate)
        for row, record in enumerate(records)
        if record.admitted and max(record.accuracy.loss.mean, record.ndcg.loss.mean) <= most_lost
    }
    if not accepted:
        return None
    best = [max(values) - records[0].margin for values in zip(*accepted.values(), strict=True)]
    near = [row for row, values in accepted.items() if all(v >= limit for v, limit in zip(values, best, strict=True))]
    return min(near or accepted, key=lambda row: sizes[row])


def _gain(trial: SearchTrial, projection: Projection) -> dict[str, float]:
    return search_gain(trial, FlatIndex.build(projection.apply(trial.documents)), projection)
