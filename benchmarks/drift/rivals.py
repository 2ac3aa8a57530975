"""The alarm that people write: a distance of the last n queries from the calibration, over a fixed threshold."""

import numpy as np

from benchmarks.drift.worlds import DriftWorld
from taugate.drift.distances import kolmogorov_smirnov
from taugate.drift.observations import Observations

_WINDOW, _EVERY = 1000, 50  # queries that are compared, and between two looks


def distances(here: DriftWorld, seen: Observations) -> np.ndarray:
    """Kolmogorov-Smirnov distance of the best similarities at each look, the first when the window is full."""
    best, reference = seen.top[:, 0], here.release.reference.top[:, 0]
    stops = range(_WINDOW, len(seen) + 1, _EVERY)
    return np.array([kolmogorov_smirnov(best[stop - _WINDOW : stop], reference) for stop in stops])


def quiet_threshold(here: DriftWorld, queries: int, seed: int) -> float:
    """The least threshold that raises no alarm in so many independent queries."""
    return float(distances(here, here.pool.draw(queries, np.random.default_rng(seed))).max())


def alarms(here: DriftWorld, seen: Observations, threshold: float) -> int:
    """Count how often the distance exceeds the threshold."""
    above = distances(here, seen) > threshold
    return int(above[0]) + int((above[1:] & ~above[:-1]).sum())
