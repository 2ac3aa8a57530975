"""Where processes keep one state of the drift alarms: replicas in Redis, the workers of one service in a file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from taugate.service.drift.fleet import Fleet
from taugate.service.metrics import SHARED_FOLDER
from taugate.storage.locks import EXCLUSIVE, acquire

# Kept without traffic: a night without queries, or a deployment that is down for hours, loses no evidence.
_STATE_SECONDS = 24 * 3600
_LOCK_SECONDS = 1.0  # other workers keep it for some milliseconds

Work = Callable[[bytes | None], bytes | None]


class SharedState(Protocol):
    """The place of one state, as bytes."""

    def change(self, work: Work) -> bool:
        """Replace the state; returns False where it is out of reach.

        Args:
            work: Makes the new state from the present one, None where there is none, or returns None to leave it; it
                may be called more than once.
        """
        ...

    def drop(self) -> None:
        """Forget the state: the release has left, and begins anew should it come back."""


class RedisState(SharedState):
    """The state of all replicas whose alarms have the same fingerprint."""

    def __init__(self, fleet: Fleet, fingerprint: str) -> None:
        """fleet: the replicas; fingerprint: of the alarms' settings, see Monitor.fingerprint."""
        self._fleet, self._kind = fleet, f"state:{fingerprint}"

    def change(self, work: Work) -> bool:
        """Replace the state; returns False where Redis does not answer, or too many others change it at once."""
        return self._fleet.change(self._kind, work, _STATE_SECONDS)

    def drop(self) -> None:
        """Forget the state; replicas that have not left write it again."""
        self._fleet.drop(self._kind)


class FileState(SharedState):
    """The state of all workers of one service."""

    def __init__(self, path: Path) -> None:
        """path: of the file, in the folder that goes with the service."""
        self._path = path

    def change(self, work: Work) -> bool:
        """Replace the state; returns False where the file cannot be locked or written."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        with os.fdopen(descriptor, "r+b") as file:
            try:
                if not acquire(file.fileno(), EXCLUSIVE, _LOCK_SECONDS):
                    return False
                made = work(file.read() or None)
                if made is not None:  # written over the old one in one call: killed before or after it, there is one
                    os.pwrite(descriptor, made, 0)
                    os.ftruncate(descriptor, len(made))
            except OSError:  # no locks, or no room: half a state is none that is restored
                return False
            return True

    def drop(self) -> None:
        """Forget the state; workers that have not left write it again."""
        self._path.unlink(missing_ok=True)


def open_shared_state(fleet: Fleet | None, release: str, fingerprint: str) -> SharedState | None:
    """Return where the state of the alarms is shared; None for a process that answers alone.

    Args:
        fleet: The other replicas.
        release: Id of the release.
        fingerprint: See RedisState.
    """
    if fleet is not None:
        return RedisState(fleet, fingerprint)
    if folder := os.environ.get(SHARED_FOLDER):
        return FileState(Path(folder) / f"drift-{release}-{fingerprint}.state")
    return None
