"""Which projection is used, if any: the gate's decision, on calibration queries alone."""

from dataclasses import dataclass, replace

import numpy as np

from calibration.data.dataset import Dataset
from calibration.encoding.corpus import EncodedDataset
from calibration.gate import Candidate, judge
from calibration.metrics.bootstrap import Split
from calibration.projection.folds import FOLDS, Trial, cross_validated
from calibration.projection.pca import fit_pca, retained
from calibration.query_set.clusters import clusters
from calibration.settings import CalibrationSettings
from retrieval.errors import InputError
from retrieval.projection import Projection
from retrieval.release.gate import GateRecord, ProjectionRecord

# From every component to half of them: gains "can continue even until the retention ratio is around 50 %" (query
# embeddings paper, Figure 4).
RETENTIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
_FEWEST_QUERIES = 30  # as for the other parts of a calibration that fit something


@dataclass(frozen=True)
class Admitted:
    """encoded: as it is searched, projected or not; record: None without a projection; gate: whatever was tried."""

    encoded: EncodedDataset
    projection: Projection | None
    record: ProjectionRecord | None
    gate: list[GateRecord]


def admit_projection(dataset: Dataset, encoded: EncodedDataset, settings: CalibrationSettings) -> Admitted:
    """Try what is asked for, and take the admitted one with the highest NDCG@10; none where the gate admits none.

    Judged on calibration queries, each by a PCA of the other folds' queries; then fitted once more on all of them.
    Raises InputError with too few queries.
    """
    if settings.projection == "none":
        return Admitted(encoded, None, None, [])
    members = Split.of(np.random.default_rng(settings.seed), len(dataset.answerable), settings.holdout).calibration
    if len(members) < _FEWEST_QUERIES:
        raise InputError(
            f"--projection {settings.projection}: needs at least {_FEWEST_QUERIES} answerable queries to calibrate on, "
            f"there are {len(members)}; label more, or leave the option out"
        )
    queries = [dataset.answerable[position] for position in members.tolist()]
    vectors = encoded.answerable[members]
    trial = Trial(queries, vectors, encoded.documents, settings.k)
    retentions = RETENTIONS if settings.projection == "auto" else (settings.retention,)
    rng = np.random.default_rng([settings.seed, 4])
    outcomes = cross_validated(trial, retentions, rng)
    pca = fit_pca(vectors)
    sizes = [retained(retention, vectors.shape[1], pca.rank) for retention in retentions]
    candidates = [
        Candidate(f"query-pca, retention {retention:g}", "projection", each, _gain(size, vectors.shape[1]))
        for retention, size, each in zip(retentions, sizes, outcomes, strict=True)
    ]
    records = judge(trial.outcome(), candidates, clusters(queries), settings.gate)
    admitted = [row for row, record in enumerate(records) if record.admitted]
    if not admitted:
        return Admitted(encoded, None, None, records)
    best = max(admitted, key=lambda row: records[row].ndcg.candidate)
    projection = pca.projection.first(sizes[best])
    record = ProjectionRecord(
        retention=retentions[best],
        dimension=sizes[best],
        queries=len(members),
        rank=pca.rank,
        explained_variance=float(pca.explained[: sizes[best]].sum()),
        folds=FOLDS,
    )
    return Admitted(_projected(encoded, projection), projection, record, records)


def _gain(dimension: int, whole: int) -> dict[str, float]:
    return {"bytes_per_document": 4.0 * dimension, "baseline_bytes_per_document": 4.0 * whole}


def _projected(encoded: EncodedDataset, projection: Projection) -> EncodedDataset:
    return replace(
        encoded,
        documents=projection.apply(encoded.documents),
        answerable=projection.apply(encoded.answerable),
        unanswerable=projection.apply(encoded.unanswerable),
    )
