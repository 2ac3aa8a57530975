"""The record of a load generator: one row for each request, and its own processor time."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LoadSample:
    """The record of n requests.

    n requests, in the order of their replies.

    Attributes:
        due: Seconds from the start until a request was to be sent.
        sent: Until it was.
        done: Until its reply was whole.
        status: Of the reply, 0 for none.
        bytes: Of the body.
        seconds: For which load was made.
        own_cpu: Processor seconds of the load generator. (n,) each, float64 and int64.
    """

    due: NDArray[np.float64]
    sent: NDArray[np.float64]
    done: NDArray[np.float64]
    status: NDArray[np.int64]
    bytes: NDArray[np.int64]
    seconds: float
    own_cpu: float

    def save(self, path: Path) -> None:
        """Write it as arrays."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            columns = {name: arrays[name] for name in ("due", "sent", "done", "status", "bytes")}
            return cls(**columns, seconds=float(arrays["seconds"]), own_cpu=float(arrays["own_cpu"]))

    @property
    def rate(self) -> float:
        """Good replies a second, while there was load."""
        return int(((self.done <= self.seconds) & (self.status == 200)).sum()) / self.seconds

    @property
    def statuses(self) -> dict[int, int]:
        """Number of replies by status."""
        return {
            int(status): int(count) for status, count in zip(*np.unique(self.status, return_counts=True), strict=True)
        }

    def milliseconds(self, percentile: float, status: int = 200) -> float:
        """Compute a percentile of the time from when a request was due until its reply was whole; NaN if no reply has the status.

        Not from when it was sent: a generator that waits for a slow server would leave its slowness out.
        """
        those = self.status == status
        return float(1000 * np.percentile((self.done - self.due)[those], percentile)) if those.any() else float("nan")
