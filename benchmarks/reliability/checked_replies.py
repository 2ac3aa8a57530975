"""Replies as seen by clients that check each one, with start and end on the machine's clock."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.checkout import environment
from taugate.retrieval.reader import load

Window = tuple[float, float]


@dataclass(frozen=True)
class Replies:
    """The replies of one checked load, as columns.

    n replies: when asked and when there, in seconds of time.monotonic; status; place of the release.

    Attributes:
        fault: 1 or 0.
    """

    sent: NDArray[np.float64]
    done: NDArray[np.float64]
    status: NDArray[np.float64]
    place: NDArray[np.float64]
    fault: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.sent)

    @property
    def failed(self) -> int:
        """Count the requests without a reply, or with another status than 200."""
        return int((self.status != 200).sum())

    @property
    def mixed(self) -> int:
        """Replies with documents or a threshold of another release than the one they name."""
        return int(((self.status == 200) & (self.fault == 1)).sum())

    def within(self, window: Window) -> int:
        """Count the replies that arrived in a window."""
        return int(((self.done >= window[0]) & (self.done < window[1])).sum())

    def milliseconds(self, percentile: float, windows: list[Window]) -> float:
        """Compute a percentile over the replies that were waited for in any of the windows."""
        inside = np.zeros(len(self), dtype=bool)
        for begin, end in windows:
            inside |= (self.done > begin) & (self.sent < end)
        return float(1000 * np.percentile((self.done - self.sent)[inside], percentile))


class CheckedLoad:
    """Clients in a process of their own that check every reply.

    `with CheckedLoad(…) as load: …`, and `load.replies` afterwards.

    Attributes:
        releases: Folders that may answer.
    """

    def __init__(self, port: int, clients: int, queries: list[str], releases: list[Path]) -> None:
        known = [load(folder, 1) for folder in releases]
        described = [
            (each.manifest.release_id, _as_sent(each.manifest.policy.tau), [document.id for document in each.documents])
            for each in known
        ]
        self._job = {"port": port, "clients": clients, "queries": queries, "releases": described}

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "job.json"
        path.write_text(json.dumps(self._job), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.reliability.checked_load", str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._folder:
            assert self._process.stdin is not None  # noqa: S101 (a type for the reader)
            self._process.stdin.close()
            code = self._process.wait(120)
            if kind is None and code:
                raise RuntimeError(f"the load generator ended with {code}")
            if not code:
                self.replies = Replies(*np.load(Path(self._folder.name) / "job.npy").T)


def _as_sent(tau: float | None) -> float | None:
    """Round τ to float32, as replies have it."""
    return None if tau is None else float(np.float32(tau))
