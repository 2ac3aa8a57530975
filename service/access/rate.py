"""A rate of queries, by GCRA: one number a key, the time until which its queries are paid for.

A query is admitted while that time is at most `tolerance` ahead of now, and moves it by 1/rate: of a key that was
quiet, one second's worth passes at once, and one query where the rate is below 1. Several queries at once pass when a
single one would and are all paid for, so that what follows waits: no batch is too large ever to pass, and over any time
the mean is the rate (ATM Forum, Traffic Management 4.0, "Generic Cell Rate Algorithm", virtual scheduling).
"""

import time
from collections.abc import Callable

_BURST = 1.0  # seconds
_ROUNDING = 5e-6  # seconds: what sums of Unix times are off by


def tolerance(rate: float) -> float:
    """Seconds that queries may be ahead of their rate."""
    return max(0.0, _BURST - 1 / rate) + _ROUNDING


class OwnRates:
    """Of one process. clock: seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid_until: dict[str, float] = {}  # of names from the file of keys: there are few

    def spend(self, name: str, rate: float, queries: int, already: int = 0) -> float:
        """Seconds to wait before the next query may pass; 0.0 where these may now, which are paid for then.

        already: queries of the same request that are paid for.
        """
        now = self._clock()
        paid_until = max(self._paid_until.get(name, now), now)
        wait = paid_until - now - tolerance(rate) - already / rate
        if wait > 0:
            return wait
        self._paid_until[name] = paid_until + queries / rate
        return 0.0
