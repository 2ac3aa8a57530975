"""What the manifest says of the relevance model."""

import numpy as np
from numpy.typing import NDArray

from calibration.metrics.reliability import expected_calibration_error, reliability
from calibration.relevance.estimate import Estimated
from calibration.relevance.parts import Parts
from calibration.scored import Scored
from retrieval.release.evidence import RelevanceRecord
from retrieval.relevance.features import FEATURES


def relevance_record(
    scored: Scored, parts: Parts | None, estimated: Estimated | None, heldout: NDArray[np.int64] | None
) -> RelevanceRecord | None:
    """How the model was fitted, and its reliability on queries that it was not fitted on.

    heldout: positions of the held-out queries; without them those that help to choose and certify, which the scale of
    the log-odds, two numbers, was fitted on.
    """
    if parts is None or estimated is None:
        return None
    unseen = parts.rest if heldout is None else heldout
    bins = reliability(estimated.answerable[unseen], scored.judged.grades[unseen] >= 1)
    return RelevanceRecord(
        features=list(FEATURES),
        fit_queries=len(parts.fit),
        regularization=estimated.fit.regularization,
        log_loss=estimated.fit.log_loss,
        part="calibration" if heldout is None else "heldout",
        queries=len(unseen),
        expected_calibration_error=expected_calibration_error(bins),
        bins=bins,
    )
