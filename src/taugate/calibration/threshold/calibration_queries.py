"""The queries that a rule is decided on, with everything known of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.measure import Rows
from taugate.calibration.metrics.ranking import ScoredQueries
from taugate.calibration.metrics.splits import MIN_CALIBRATING, QueryRoles
from taugate.calibration.relevance.model import EstimatedRelevance


@dataclass(frozen=True)
class CalibrationQueries:
    """The queries that a rule is decided on: which of them may decide, and which certify.

    Attributes:
        scored: All answerable queries.
        calibration: Positions of those that calibrate.
        rows: (m, l) of their bootstraps.
        roles: None with too few queries.
        estimated: Model of relevance, None without one.
        units: What counts as one draw among all answerable queries.
        seed: Of the calibration.
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
        if len(units) < MIN_CALIBRATING:
            return (
                f"needs at least {MIN_CALIBRATING} answerable queries to calibrate on, there are {len(units)}; "
                "label more, give a smaller --holdout, or --policy similarity"
            )
        return (
            f"some queries fit a model, some choose, and the rest certify, no document in two parts; {units.words} "
            "cannot be divided so; label queries about other documents, or give --policy similarity"
        )
