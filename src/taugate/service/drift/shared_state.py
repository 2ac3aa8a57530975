"""Keeps one state of the drift alarms for several processes: replicas in Redis, workers of one service in a file."""

import os
from collections.abc import Callable
from pathlib import Path

from taugate.service.drift.fleet import Fleet
from taugate.service.metrics import SHARED_FOLDER
from taugate.storage.locks import EXCLUSIVE, acquire

# Without traffic: a night without queries, or a deployment that is down for hours, loses no evidence.
_STATE_SECONDS = 24 * 3600
_LOCK_SECONDS = 1.0  # other workers keep it for some milliseconds

Work = Callable[[bytes | None], bytes | None]


class RedisState:
    """The state of all replicas whose alarms have the same fingerprint."""

    def __init__(self, fleet: Fleet, fingerprint: str) -> None:
        self._fleet, self._kind = fleet, f"state:{fingerprint}"

    def change(self, work: Work) -> bool:
        """Replace the state; returns False if Redis is not responding or too many replicas change it at once.

        `work` is that of Fleet.change.
        """
        return self._fleet.change(self._kind, work, _STATE_SECONDS)

    def drop(self) -> None:
        """Delete the state of a release that has left; replicas that still serve it write the state again."""
        self._fleet.drop(self._kind)


class FileState:
    """The state of all workers of one service."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def change(self, work: Work) -> bool:
        """Replace the state as `RedisState.change` does; returns False if the file cannot be locked or written."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        with os.fdopen(descriptor, "r+b") as file:
            try:
                if not acquire(file.fileno(), EXCLUSIVE, _LOCK_SECONDS):
                    return False
                state = work(file.read() or None)
                if state is not None:  # overwritten in one call: killed before or after it, the file has a state
                    os.pwrite(descriptor, state, 0)
                    os.ftruncate(descriptor, len(state))
            except OSError:  # no locks, or no space: a partial state is never restored
                return False
            return True

    def drop(self) -> None:
        """Delete the state; workers that still serve the release write it again."""
        self._path.unlink(missing_ok=True)


def open_shared_state(fleet: Fleet | None, release: str, fingerprint: str) -> RedisState | FileState | None:
    """Return the shared state of the alarms of a release; None for a single process.

    `fleet` has the other replicas, if any; `fingerprint` is Monitor.fingerprint.
    """
    if fleet is not None:
        return RedisState(fleet, fingerprint)
    if folder := os.environ.get(SHARED_FOLDER):
        return FileState(Path(folder) / f"drift-{release}-{fingerprint}.state")
    return None
