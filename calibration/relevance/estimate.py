"""From the queries of the first part to a model, and from the model to the relevance of every result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.calibration.metrics.bootstrap import FEWEST_QUERIES, Parts, Rows
from taugate.calibration.metrics.clusters import Units
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.reliability import (
    LIKELY,
    Sums,
    brier,
    brier_skill,
    error_interval,
    expected_calibration_error,
    reliability,
)
from taugate.calibration.metrics.scored import Scored
from taugate.calibration.relevance.fit import Fit, fit, recalibrated
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.relevance import FEATURES, Background, Relevance, features
from taugate.retrieval.release.evidence import RelevanceRecord
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class Estimated:
    """A fitted model with the probabilities it gives: answerable (n, K) and unanswerable (u, K) float32.

    fit: before its probabilities were recalibrated, and what it then gave to the queries that help to choose, (c, K),
    for a choice in which those that certify have no say.
    """

    relevance: Relevance
    fit: Fit
    choosing: Float32
    answerable: Float32
    unanswerable: Float32


def estimate(
    judged: JudgedQueries,
    vectors: Float32,
    unanswerable: tuple[TopK, Float32],
    parts: Parts,
    documents: Float32,
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Estimated | None:
    """Fit on the queries at `parts.fit`, of the n answerable ones, recalibrate on the others, score every result.

    vectors: (n, d); unanswerable: their top-K and (u, d) vectors; documents: (N, d); lengths: (N,) bytes of each. None
    where the queries to fit on have no relevant result, or nothing else. One thread: the same data give the same bits.
    """
    with threadpool_limits(limits=1):
        background = Background.of(documents, vectors[parts.fit], lengths)
        k = judged.top.scores.shape[1]
        found = background.documents[judged.top.positions]
        values, relevant = features(judged.top.scores, background.of_queries(vectors), found, k), judged.grades >= 1
        fitted = fit(values[parts.fit], relevant[parts.fit], parts.labels)
        if fitted is None:
            return None
        model = recalibrated(fitted.model, values[parts.rest], relevant[parts.rest])
        relevance = Relevance(model, background, k)
        return Estimated(
            relevance,
            fitted,
            fitted.model.probability(values[parts.choose]).astype(np.float32),
            model.probability(values).astype(np.float32),
            relevance.estimate(unanswerable[1], unanswerable[0]),
        )


@dataclass(frozen=True)
class Evidence:
    """The queries, who may decide and who certifies.

    scored: all answerable queries; calibration: positions of those that calibrate, rows: their bootstraps (m, l);
    parts and estimated: None with too few queries; units: what counts as one draw among all answerable queries.
    """

    scored: Scored
    calibration: NDArray[np.int64]
    rows: Rows
    parts: Parts | None
    estimated: Estimated | None
    units: Units
    seed: int

    @property
    def lacking(self) -> str:
        """Why there are no parts, and what to do."""
        units = self.units.take(self.calibration)
        if len(units) < FEWEST_QUERIES:
            return (
                f"needs at least {FEWEST_QUERIES} answerable queries to calibrate on, there are {len(units)}; label "
                "more, give a smaller --holdout, or --policy similarity"
            )
        return (
            f"some queries fit a model, some choose, and the rest certify, no document in two parts; {units.words} "
            "cannot be divided so; label queries about other documents, or give --policy similarity"
        )


def relevance_record(evidence: Evidence, heldout: NDArray[np.int64] | None) -> RelevanceRecord | None:
    """How the model was fitted, and its reliability on queries that it was not fitted on.

    heldout: positions of the held-out queries; without them those that help to choose and certify, which the
    recalibration, three numbers, was fitted on. Bootstraps come from `numpy.random.default_rng([seed, 7])`.
    """
    parts, estimated = evidence.parts, evidence.estimated
    if parts is None or estimated is None:
        return None
    unseen = parts.rest if heldout is None else heldout
    relevance, relevant = estimated.answerable[unseen], evidence.scored.judged.grades[unseen] >= 1
    sums = Sums.of(relevance, relevant, evidence.units.labels[unseen])
    drawn = sums.drawn(np.random.default_rng([evidence.seed, 7]))
    return RelevanceRecord(
        features=list(FEATURES),
        fit_queries=len(parts.fit),
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
