"""Which projection is used, if any: the gate's decision, on calibration queries alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from taugate.calibration.encoding.corpus import EncodedDataset
from taugate.calibration.gate.gate import Candidate, Judge, Outcome, Trial
from taugate.calibration.gate.indexes import search_gain
from taugate.calibration.settings.settings import RETENTION, CandidateSettings
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.release.records import GateRecord, ProjectionRecord
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


FOLDS = 5  # fits on 80 % of the queries, which is nearer to all of them than the two thirds of the paper's 3 folds

Positions = NDArray[np.int64]


def cross_validated(
    trial: Trial, retentions: Sequence[float], rng: np.random.Generator, folds: int = FOLDS
) -> list[Outcome]:
    """The outcome at each retention: every query is answered by a PCA fitted on the other folds' queries.

    Raises ValueError with fewer queries than folds.
    """
    count, dimension = trial.vectors.shape
    found = [Outcome(np.empty(count), np.empty(count)) for _ in retentions]
    for rest, fold in _folds(count, folds, rng):
        pca = fit_pca(trial.vectors[rest])
        asked = [trial.queries[position] for position in fold.tolist()]
        for each, retention in zip(found, retentions, strict=True):
            projection = pca.projection.first(retained(retention, dimension, pca.rank))
            vectors, documents = projection.apply(trial.vectors[fold]), projection.apply(trial.documents)
            of_fold = Trial(asked, vectors, documents, trial.k).outcome()
            each.accuracy[fold], each.ndcg[fold] = of_fold.accuracy, of_fold.ndcg
    return found


def _folds(count: int, folds: int, rng: np.random.Generator) -> Iterator[tuple[Positions, Positions]]:
    """The rest and the fold, of a random partition."""
    if count < folds:
        raise ValueError(f"{count} queries make no {folds} folds")
    order = rng.permutation(count)
    for number in range(folds):
        yield np.sort(order[np.arange(count) % folds != number]), np.sort(order[number::folds])


# From every component to half of them: gains "can continue even until the retention ratio is around 50 %" (query
# embeddings paper, Figure 4).
RETENTIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True)
class Projected:
    """What is searched from now on.

    encoded: projected or not; record: None without a projection; outcome: what the gate judged of it, queries that the
    projection had not seen; None without one.
    """

    encoded: EncodedDataset
    projection: Projection | None
    record: ProjectionRecord | None
    outcome: Outcome | None


def admit_projection(
    trial: Trial, encoded: EncodedDataset, cheaper: CandidateSettings, seed: int, judged: Judge
) -> Projected:
    """Try what is asked for, and take the smallest of the best that are admitted; none where the gate admits none.

    trial: the calibration queries, of which each is judged by a PCA of the other folds' queries; then it is fitted once
    more on all of them.
    """
    vectors = trial.vectors
    retentions = RETENTIONS if cheaper.projection == "auto" else (cheaper.retention or RETENTION,)
    rng = np.random.default_rng([seed, 4])
    outcomes = cross_validated(trial, retentions, rng)
    pca = fit_pca(vectors)
    sizes = [retained(retention, vectors.shape[1], pca.rank) for retention in retentions]
    flat = FlatIndex.build(trial.documents)
    candidates = [
        Candidate(
            f"query-pca, retention {retention:g}", "projection", each, _gain(trial, flat, pca.projection.first(size))
        )
        for retention, size, each in zip(retentions, sizes, outcomes, strict=True)
    ]
    best = _chosen(judged(candidates), sizes)
    if best is None:
        return Projected(encoded, None, None, None)
    projection = pca.projection.first(sizes[best])
    record = ProjectionRecord(
        retention=retentions[best],
        dimension=sizes[best],
        queries=len(vectors),
        rank=pca.rank,
        explained_variance=float(pca.explained[: sizes[best]].sum()),
        folds=FOLDS,
    )
    return Projected(_projected(encoded, projection), projection, record, outcomes[best])


def _chosen(records: Sequence[GateRecord], sizes: Sequence[int]) -> int | None:
    """Row of the smallest that is admitted and not the margin below the best of these: gains are not given away."""
    admitted = {
        row: (record.accuracy.candidate, record.ndcg.candidate) for row, record in enumerate(records) if record.admitted
    }
    if not admitted:
        return None
    best = [max(values) - records[0].margin for values in zip(*admitted.values(), strict=True)]
    near = [row for row, values in admitted.items() if all(v >= least for v, least in zip(values, best, strict=True))]
    return min(near or admitted, key=lambda row: sizes[row])


def _gain(trial: Trial, flat: FlatIndex, projection: Projection) -> dict[str, float]:
    projected = FlatIndex.build(projection.apply(trial.documents))
    return search_gain(trial, flat, projected, projection)


def _projected(encoded: EncodedDataset, projection: Projection) -> EncodedDataset:
    return replace(
        encoded,
        documents=projection.apply(encoded.documents),
        answerable=projection.apply(encoded.answerable),
        unanswerable=projection.apply(encoded.unanswerable),
        off_topic=projection.apply(encoded.off_topic),
    )
