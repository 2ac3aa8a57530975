"""Weeks with days and nights, and baselines learnt from them."""

from dataclasses import replace

import numpy as np

from taugate.drift.monitor import Baseline, Monitor
from taugate.drift.observations import Observations
from taugate.drift.signals import Rules, theta_of
from tests.drift.similarities import reference, traffic

CALIBRATION = reference(np.random.default_rng(0))

MONDAY = 19_723 * 86_400.0  # 2024-01-01, UTC

PER_DAY = 4000  # ten blocks by day, ten by night


def monitor(baseline: Baseline | None = None, rules: Rules | None = None) -> Monitor:
    ordinary = baseline.bounds if baseline else {}
    return Monitor(CALIBRATION, theta_of(CALIBRATION, 5), rules or Rules(), ordinary)


def days(seed: int, many: int, swing: float, per_day: int = PER_DAY) -> Observations:
    """Similarities are higher by `swing` by day and lower by as much at night, from a Monday on."""
    queries = per_day * many
    night = np.arange(queries) // (per_day // 2) % 2
    seen = traffic(np.random.default_rng(seed), queries, mean=0.6 + swing * (1 - 2 * night))
    return replace(seen, at=MONDAY + np.arange(queries) * 86_400 / per_day)


def learnt(seed: int = 1, swing: float = 0.1) -> Baseline:
    return Baseline.learn("release", days(seed, 7, swing), monitor())
