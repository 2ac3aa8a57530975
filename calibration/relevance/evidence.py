"""What a decision rests on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.bootstrap import Rows
from taugate.calibration.metrics.clusters import Units
from taugate.calibration.metrics.parts import FEWEST_QUERIES, Parts
from taugate.calibration.metrics.scored import Scored
from taugate.calibration.relevance.estimate import Estimated


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
