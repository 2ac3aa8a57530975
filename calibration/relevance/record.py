"""What the manifest says of the relevance model."""

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.reliability import (
    LIKELY,
    Sums,
    brier,
    brier_skill,
    error_interval,
    expected_calibration_error,
    reliability,
)
from taugate.calibration.relevance.evidence import Evidence
from taugate.retrieval.policy.features import FEATURES
from taugate.retrieval.release.evidence import RelevanceRecord


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
