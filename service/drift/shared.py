"""One state of the alarms for all that answer: replicas by Redis, workers of one machine by a file.

Whoever has seen queries takes the state, adds them, and leaves it, one after the other. So the deployment has the
evidence of one process with all of its traffic: as soon, and as seldom wrong.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from taugate.service.drift.fleet import Fleet
from taugate.service.metrics import SHARED_FOLDER
from taugate.storage.flock import ALONE, acquire

# Kept without traffic: a night without queries, or a deployment that is down for hours, loses no evidence.
_SECONDS = 24 * 3600
_LOCK_SECONDS = 1.0  # other workers keep it for some milliseconds

Work = Callable[[bytes | None], bytes | None]


class Shared(Protocol):
    """Where the state is."""

    def change(self, work: Work) -> bool:
        """Replace the state by what `work` makes of it, None to leave it; False where it is out of reach.

        `work` may be called more than once, each time with what the state then is.
        """

    def drop(self) -> None:
        """Forget the state: the release has left, and begins anew should it come back."""


class InRedis(Shared):
    """Of all replicas whose alarms have the same fingerprint."""

    def __init__(self, fleet: Fleet, fingerprint: str) -> None:
        self._fleet, self._kind = fleet, f"state:{fingerprint}"

    def change(self, work: Work) -> bool:
        """False where Redis does not answer, or too many others are at it."""
        return self._fleet.change(self._kind, work, _SECONDS)

    def drop(self) -> None:
        """The last of the replicas to leave has the last word."""
        self._fleet.drop(self._kind)


class InFile(Shared):
    """Of all workers of one service, in the folder that goes with it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def change(self, work: Work) -> bool:
        """False where the file cannot be locked or written."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        with os.fdopen(descriptor, "r+b") as file:
            try:
                if not acquire(file.fileno(), ALONE, _LOCK_SECONDS):
                    return False
                made = work(file.read() or None)
                if made is not None:
                    file.seek(0)
                    file.truncate()
                    file.write(made)
            except OSError:  # no locks, or no room: half a state is none that is restored
                return False
            return True

    def drop(self) -> None:
        """The last of the workers to leave has the last word."""
        self._path.unlink(missing_ok=True)


def shared_state(fleet: Fleet | None, release: str, fingerprint: str) -> Shared | None:
    """None for a process that answers alone."""
    if fleet is not None:
        return InRedis(fleet, fingerprint)
    if folder := os.environ.get(SHARED_FOLDER):
        return InFile(Path(folder) / f"drift-{release}-{fingerprint}.state")
    return None
