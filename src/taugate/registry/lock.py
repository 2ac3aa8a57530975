"""Locks of a releases directory: to change it, to calibrate into it, and to keep an open release from being pruned.

All of them are flock, so that nothing has to be cleaned up after a kill -9. Reading the directory needs no lock.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from taugate.errors import ReleaseError
from taugate.retrieval.release.layout import MANIFEST
from taugate.storage.locks import EXCLUSIVE, SHARED, acquire, exclusive_lock, is_at

CHANGE_LOCK = ".lock"
CALIBRATION_LOCK = ".calibrating.lock"
# A change holds the lock for the milliseconds of one line and one rename, unless its process or disk hangs.
_CHANGE_SECONDS = 30
_PRUNE_SECONDS = 5  # prune locks a release for one rename


def change_lock(releases: Path) -> AbstractContextManager[None]:
    """Lock `current`, `shadow`, the history and the removal of releases for a change, and wait for other changes.

    Raises:
        ReleaseError: If that takes more than half a minute, or if the directory is not writable.
    """

    def busy(holder: str) -> ReleaseError:
        return ReleaseError(
            f"{releases}: {holder} has been changing it for {_CHANGE_SECONDS} s; end that process if it hangs, and try "
            "again"
        )

    return exclusive_lock(releases / CHANGE_LOCK, _CHANGE_SECONDS, busy)


@contextmanager
def calibration_lock(releases: Path) -> Iterator[None]:
    """Lock a directory for a calibration; the lock file is removed afterwards.

    Args:
        releases: The releases directory, created if needed, and removed again if it remains empty.

    Raises:
        ReleaseError: At once if another calibration is running there.
    """
    created = [folder for folder in (releases, *releases.parents) if not folder.exists()]
    releases.mkdir(parents=True, exist_ok=True)

    def busy(holder: str) -> ReleaseError:
        return ReleaseError(
            f"{releases}: {holder} is calibrating into it; wait until that is done, or name another --releases"
        )

    try:
        with exclusive_lock(releases / CALIBRATION_LOCK, 0, busy, temporary=True):
            yield
    finally:
        for folder in created:
            with suppress(OSError):  # not empty
                folder.rmdir()


def lock_for_reading(release: Path) -> ExitStack:
    """Keep a release from being pruned until the returned lock is closed, or the process ends.

    Take the lock before reading anything of the release. It is shared and needs no write permission. On a file system
    without locks it succeeds: serving is more important than pruning.

    Raises:
        ReleaseError: If the release does not exist, or is being pruned.
    """
    path = release / MANIFEST
    with ExitStack() as lock:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # never blocks, even on a named pipe
        except OSError as error:
            raise ReleaseError(f"{path}: cannot be opened ({error.strerror}); promote another release") from error
        lock.callback(os.close, descriptor)
        try:
            acquired = acquire(descriptor, SHARED, _PRUNE_SECONDS)
        except OSError:  # a file system without locks, as of some object stores
            acquired = True
        if not acquired or not is_at(descriptor, path):
            raise ReleaseError(f"{release}: is being pruned; promote another release")
        return lock.pop_all()


@contextmanager
def try_lock_for_removal(release: Path) -> Iterator[bool]:
    """Lock a release exclusively unless it is open; yields whether that succeeded.

    While it is locked, no process can open the release. On a file system without locks it fails.
    """
    try:
        descriptor = _open_to_lock(release / MANIFEST)
    except FileNotFoundError:  # a service cannot open a release without a manifest
        yield True
        return
    try:
        yield _try_exclusive(descriptor)
    finally:
        os.close(descriptor)


def _open_to_lock(path: Path) -> int:
    """Open for writing if that is allowed, because NFS locks exclusively only files that are open for writing."""
    flags = os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, os.O_RDWR | flags)
    except FileNotFoundError:
        raise
    except OSError:  # read-only, or another user's
        return os.open(path, os.O_RDONLY | flags)


def _try_exclusive(descriptor: int) -> bool:
    try:
        return acquire(descriptor, EXCLUSIVE)
    except OSError:
        return False
