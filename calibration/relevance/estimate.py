"""From the queries of the first part to a model, and from the model to the relevance of every result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.calibration.metrics.bootstrap import Rows
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.metrics.reliability import (
    LIKELY,
    ReliabilitySums,
    brier,
    brier_skill,
    error_interval,
    expected_calibration_error,
    reliability,
)
from taugate.calibration.metrics.splits import FEWEST_CALIBRATING, QueryRoles
from taugate.calibration.relevance.fit import RelevanceFit, fit_relevance, recalibrate
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.relevance import FEATURES, Background, Relevance, features
from taugate.retrieval.release.evidence import RelevanceRecord
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class EstimatedRelevance:
    """A fitted model with the probabilities it gives: answerable (n, K) and unanswerable (u, K) float32.

    fit: before its probabilities were recalibrated, and what it then gave to the queries that help to choose, (c, K),
    for a choice in which those that certify have no say.
    """

    relevance: Relevance
    fit: RelevanceFit
    choosing: Float32
    answerable: Float32
    unanswerable: Float32


def estimate_relevance(
    judged: JudgedQueries,
    vectors: Float32,
    unanswerable: tuple[TopK, Float32],
    roles: QueryRoles,
    documents: Float32,
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> EstimatedRelevance | None:
    """Fit on the queries at `roles.fit`, of the n answerable ones, recalibrate on the others, score every result.

    vectors: (n, d); unanswerable: their top-K and (u, d) vectors; documents: (N, d); lengths: (N,) bytes of each. None
    where the queries to fit on have no relevant result, or nothing else. One thread: the same data give the same bits.
    """
    with threadpool_limits(limits=1):
        background = Background.of(documents, vectors[roles.fit], lengths)
        k = judged.top.scores.shape[1]
        found = background.documents[judged.top.positions]
        values, relevant = features(judged.top.scores, background.of_queries(vectors), found, k), judged.grades >= 1
        fitted = fit_relevance(values[roles.fit], relevant[roles.fit], roles.labels)
        if fitted is None:
            return None
        model = recalibrate(fitted.model, values[roles.rest], relevant[roles.rest])
        relevance = Relevance(model, background, k)
        return EstimatedRelevance(
            relevance,
            fitted,
            fitted.model.probability(values[roles.choose]).astype(np.float32),
            model.probability(values).astype(np.float32),
            relevance.estimate(unanswerable[1], unanswerable[0]),
        )


@dataclass(frozen=True)
class CalibrationQueries:
    """The queries, who may decide and who certifies.

    scored: all answerable queries; calibration: positions of those that calibrate, rows: their bootstraps (m, l);
    roles and estimated: None with too few queries; units: what counts as one draw among all answerable queries.
    """

    scored: ScoredQueries
    calibration: NDArray[np.int64]
    rows: Rows
    roles: QueryRoles | None
    estimated: EstimatedRelevance | None
    units: SamplingUnits
    seed: int

    @property
    def lacking(self) -> str:
        """Why there are no roles, and what to do."""
        units = self.units.take(self.calibration)
        if len(units) < FEWEST_CALIBRATING:
            return (
                f"needs at least {FEWEST_CALIBRATING} answerable queries to calibrate on, there are {len(units)}; "
                "label more, give a smaller --holdout, or --policy similarity"
            )
        return (
            f"some queries fit a model, some choose, and the rest certify, no document in two parts; {units.words} "
            "cannot be divided so; label queries about other documents, or give --policy similarity"
        )


def relevance_record(evidence: CalibrationQueries, heldout: NDArray[np.int64] | None) -> RelevanceRecord | None:
    """How the model was fitted, and its reliability on queries that it was not fitted on.

    heldout: positions of the held-out queries; without them those that help to choose and certify, which the
    recalibration, three numbers, was fitted on. Bootstraps come from `numpy.random.default_rng([seed, 7])`.
    """
    roles, estimated = evidence.roles, evidence.estimated
    if roles is None or estimated is None:
        return None
    unseen = roles.rest if heldout is None else heldout
    relevance, relevant = estimated.answerable[unseen], evidence.scored.judged.grades[unseen] >= 1
    sums = ReliabilitySums.of(relevance, relevant, evidence.units.labels[unseen])
    drawn = sums.drawn(np.random.default_rng([evidence.seed, 7]))
    return RelevanceRecord(
        features=list(FEATURES),
        fit_queries=len(roles.fit),
        regularization=estimated.fit.regularization,
        log_loss=estimated.fit.log_loss,
        recalibration=estimated.relevance.model.recalibration.kind,
        part="calibration" if heldout is None else "heldout",
        queries=len(unseen),
        documents=len(sums.squares),
        expected_calibration_error=expected_calibration_error(sums),
        brier=brier(sums, drawn),
        brier_skill=brier_skill(sums, drawn),
        error=error_interval(sums, drawn),
        error_of_likely=error_interval(sums, drawn, LIKELY) if (relevance >= LIKELY).any() else None,
        bins=reliability(sums),
    )
