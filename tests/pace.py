"""Time limits of tests on a machine that is slow, or busy with other work."""

import time

_LOOPS = 2_000_000
_SECONDS = 0.033  # of the loops on the machine for which the limits were chosen, with nothing else running
_largest = 1.0  # slowness of this machine so far


def slowness() -> float:
    """Return how many times longer than there a computation takes here, at least 1: the largest ratio seen so far."""
    global _largest  # noqa: PLW0603
    began = time.perf_counter()
    for _ in range(_LOOPS):
        pass
    _largest = max(_largest, (time.perf_counter() - began) / _SECONDS)
    return _largest


def at_most(seconds: float) -> float:
    """Return the limit for what takes less than some seconds on a fast machine without other work."""
    return seconds * slowness()
