"""What a decision rests on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.metrics.bootstrap import Rows
from calibration.query_set.clusters import Labels
from calibration.relevance.estimate import Estimated
from calibration.relevance.parts import Parts
from calibration.scored import Scored


@dataclass(frozen=True)
class Evidence:
    """The queries, who may decide and who certifies.

    scored: all answerable queries; calibration: positions of those that calibrate, rows: their bootstraps (m, l);
    parts and estimated: None with too few queries; labels: cluster of each answerable query, of those that share a
    document.
    """

    scored: Scored
    calibration: NDArray[np.int64]
    rows: Rows
    parts: Parts | None
    estimated: Estimated | None
    labels: Labels
    seed: int
