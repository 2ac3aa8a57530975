"""The alarms that people write: a distance of the last n queries from the calibration, over a fixed threshold."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from retrieval.drift.observations import Observations
from retrieval.drift.statistics import kolmogorov_smirnov, population_stability
from retrieval.similarity import Float32

_EVERY = 50  # queries between two looks


@dataclass(frozen=True)
class Rival:
    """statistic: of the best similarities of the last `window` queries and of the calibration."""

    name: str
    statistic: Callable[[Float32, Float32], float]
    window: int

    def looks(self, seen: Observations, reference: Float32) -> np.ndarray:
        """The statistic at each look, the first when the window is full."""
        best, steps = seen.top[:, 0], range(self.window, len(seen) + 1, _EVERY)
        return np.array([self.statistic(best[stop - self.window : stop], reference) for stop in steps])

    def delay(self, before: Observations, after: Observations, reference: Float32, threshold: float) -> float:
        """Queries after a change to the first look above the threshold; infinite when there is none.

        before: as many queries as the window has, so that it is full when the change comes.
        """
        looks = self.looks(Observations.joined([before, after]), reference)
        above = np.flatnonzero(looks > threshold)
        return float(above[0] * _EVERY) if len(above) else np.inf


RIVALS = [
    Rival(f"{name}, last {window:,}", statistic, window)
    for name, statistic in (("KS", kolmogorov_smirnov), ("PSI", population_stability))
    for window in (200, 1000)
]
