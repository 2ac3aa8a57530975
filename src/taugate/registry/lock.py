"""Locks of a releases directory: for changing it, for calibrating into it, and for keeping an open release there.

All of them are flock: nothing has to be cleared away after a kill -9. Reading the directory takes none of these.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from taugate.errors import ReleaseError
from taugate.retrieval.release.layout import MANIFEST
from taugate.storage.locks import EXCLUSIVE, SHARED, acquire, exclusive_lock, is_at

CHANGE_LOCK = ".lock"
CALIBRATION_LOCK = ".calibrating.lock"
# A change takes the lock for the milliseconds of one line and one rename: whoever has it longer is stopped, or has a
# disk that hangs.
_CHANGE_SECONDS = 30
# Prune has a release locked for one rename.
_PRUNE_SECONDS = 5


@contextmanager
def change_lock(releases: Path) -> Iterator[None]:
    """Take the right to change `current`, `shadow` and the history, and to remove releases; wait for whoever has it.

    Args:
        releases: The releases directory.

    Raises:
        ReleaseError: Where that takes more than half a minute, or where the directory cannot be written to.
    """
    with exclusive_lock(releases / CHANGE_LOCK, _CHANGE_SECONDS) as holder:
        if holder is not None:
            raise ReleaseError(
                f"{releases}: {holder} has been changing it for {_CHANGE_SECONDS} s; check what that process does, end "
                "it if it hangs, and try again"
            )
        yield


@contextmanager
def calibration_lock(releases: Path) -> Iterator[None]:
    """Take the right to calibrate into a directory; of the lock nothing is left afterwards.

    Args:
        releases: The releases directory, which is made where needed, and removed again where it stays empty.

    Raises:
        ReleaseError: At once while another calibration runs there.
    """
    made = [folder for folder in (releases, *releases.parents) if not folder.exists()]
    releases.mkdir(parents=True, exist_ok=True)
    path = releases / CALIBRATION_LOCK
    try:
        with exclusive_lock(path, 0) as holder:
            if holder is not None:
                raise ReleaseError(
                    f"{releases}: {holder} is calibrating into it; wait until that is done, or name another --releases"
                )
            try:
                yield
            finally:
                path.unlink(missing_ok=True)  # by its holder, so that nobody's lock is taken away
    finally:
        for folder in made:
            with suppress(OSError):  # it holds a release by now
                folder.rmdir()


class ReadLock:
    """A shared lock on a release: prune leaves the release alone until `close`, or until the process ends.

    Attributes:
        descriptor: Of its manifest, open and locked; the lock owns it from now on.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        """Release the lock; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def lock_for_reading(release: Path) -> ReadLock:
    """Keep a release from being pruned; take the lock before anything of the release is read.

    It needs no right to write. Where the file system has no locks, it succeeds: serving goes before pruning.

    Args:
        release: The release's folder.

    Raises:
        ReleaseError: Where the release is not there, or is being pruned.
    """
    path = release / MANIFEST
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a named pipe must not stop us
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be opened ({error.strerror}); promote another release") from error
    try:
        got = acquire(descriptor, SHARED, _PRUNE_SECONDS)
    except OSError:  # a file system without locks, as of some object stores
        got = True
    if not got or not is_at(descriptor, path):
        os.close(descriptor)
        raise ReleaseError(f"{release}: is being pruned; promote another release")
    return ReadLock(descriptor)


@contextmanager
def try_lock_for_removal(release: Path) -> Iterator[bool]:
    """Lock a release exclusively where nobody has it open; yields whether that succeeded.

    While it is locked, nobody can open the release. Where the file system has no locks, it fails.

    Args:
        release: The release's folder.
    """
    try:
        descriptor = _open_to_lock(release / MANIFEST)
    except FileNotFoundError:  # no service opens what has no manifest
        yield True
        return
    try:
        yield _try_exclusive(descriptor)
    finally:
        os.close(descriptor)


def _open_to_lock(path: Path) -> int:
    """Open for writing where that is allowed, as NFS locks nothing exclusively that is open for reading only."""
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
