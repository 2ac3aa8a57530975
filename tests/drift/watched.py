"""A monitor with a known calibration, and changes of its packed state."""

from collections.abc import Callable

import numpy as np
from safetensors.numpy import load, save

from taugate.drift.alarm import Change
from taugate.drift.monitor import Monitor
from taugate.drift.signals import Rules, theta_of
from taugate.release.queries import Reference
from tests.drift.similarities import reference

CALIBRATION = reference(np.random.default_rng(0))


def monitor(rules: Rules | None = None, calibration: Reference = CALIBRATION) -> Monitor:
    return Monitor(calibration, theta_of(calibration, 5), rules or Rules())


def on(changes: list[Change]) -> set[str]:
    return {change.signal for change in changes if change.on}


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    """Change one array of a packed state."""

    def changed(packed: bytes) -> bytes:
        arrays = load(packed)
        return save(arrays | {name: np.ascontiguousarray(change(arrays[name]))})

    return changed
