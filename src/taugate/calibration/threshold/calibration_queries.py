"""The queries that decide a rule, with their scores, roles and model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.measure import Rows
from taugate.calibration.metrics.ranking import ScoredQueries
from taugate.calibration.metrics.splits import MIN_CALIBRATING, Positions, QueryRoles
from taugate.calibration.relevance.model import AppliedRelevance


@dataclass(frozen=True)
class CalibrationQueries:
    """The queries that decide a rule, and which of them certify.

    Attributes:
        scored: All answerable queries.
        calibration: Positions of the calibration queries.
        rows: (m, l) positions in the bootstraps.
        roles: None with too few queries.
        estimated: Model of relevance, None without one.
        units: Sampling units of all answerable queries.
        seed: Seed of the calibration.
    """

    scored: ScoredQueries
    calibration: NDArray[np.int64]
    rows: Rows
    roles: QueryRoles | None
    estimated: AppliedRelevance | None
    units: SamplingUnits
    seed: int

    def certifying(self, *, model: bool) -> Positions:
        """Return the positions of the queries that certify, which fit neither a model nor the score of ρ.

        `certifying_count` predicts their number.
        """
        answering = self.scored.answering
        fits = model or (answering is not None and answering.fitted)
        return self.roles.not_fitting if fits and self.roles is not None else self.calibration

    @property
    def lacking(self) -> str:
        """Reason why no roles could be assigned, with a remedy."""
        units = self.units.take(self.calibration)
        if len(units) < MIN_CALIBRATING:
            return (
                f"needs at least {MIN_CALIBRATING} answerable queries to calibrate on, there are {len(units)}; "
                "label more queries, lower --holdout, or use --policy similarity"
            )
        return (
            f"the queries are divided into those that fit a model and those that certify, with no document in both; "
            f"{units.words} are not enough; label queries about other documents, or use --policy similarity"
        )
