"""From some of the queries to a model of relevance, and from the model to the probability of every result."""

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
    """A fitted model with the probabilities that it gives.

    relevance: the model with what describes a query and its results; fit: the model before its probabilities were
    recalibrated, for a choice in which the queries that certify have no say; choosing: (c, K) float32, what it then
    gave to the queries that help to choose; answerable: (n, K) and unanswerable: (u, K) float32, probabilities of all
    results.
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
    """Fit on the queries that fit, recalibrate on the other calibration queries, and score every result.

    One thread: the same data give the same bits.

    judged: the n answerable queries with their results; vectors: (n, d) float32, of them; unanswerable: the top-K of
    the u unanswerable ones, and their (u, d) vectors; roles: which queries fit; documents: (N, d) float32; lengths:
    (N,) bytes of each document. None where the queries that fit have no relevant result, or nothing else.
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
    """The queries that a rule is decided on: which of them may decide, and which certify.

    scored: all answerable queries; calibration: positions of those that calibrate; rows: (m, l) of their bootstraps;
    roles: None with too few queries; estimated: model of relevance, None without one; units: what counts as one draw
    among all answerable queries; seed: of the calibration.
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
        """Reason for having no roles, with what to do about it."""
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
    """Write down how the model was fitted, and its reliability on queries that it was not fitted on.

    Bootstraps come from `numpy.random.default_rng([seed, 7])`.

    evidence: the queries; heldout: positions of the held-out ones; without them it is measured on those that help to
    choose and certify, which the recalibration, three numbers, was fitted on. None where there is no model.
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
