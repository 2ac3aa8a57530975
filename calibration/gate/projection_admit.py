"""Which projection is used, if any: the gate's decision, on calibration queries alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from taugate.calibration.encoding.corpus import EncodedDataset
from taugate.calibration.gate.folds import FOLDS, cross_validated
from taugate.calibration.gate.gain import search_gain
from taugate.calibration.gate.gate import Candidate, Judge, Outcome
from taugate.calibration.gate.pca import fit_pca, retained
from taugate.calibration.gate.trial import Trial
from taugate.calibration.settings.cheaper import RETENTION, Cheaper
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.release.gate import GateRecord, ProjectionRecord
from taugate.retrieval.vectors.projection import Projection

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


def admit_projection(trial: Trial, encoded: EncodedDataset, cheaper: Cheaper, seed: int, judged: Judge) -> Projected:
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
