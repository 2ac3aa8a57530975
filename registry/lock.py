"""Who may change a releases directory, who calibrates into it, and who has a release of it open.

All of it is flock: nothing has to be cleared away after a kill -9. Reading takes none of these.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from taugate.errors import ReleaseError
from taugate.retrieval.release.layout import MANIFEST
from taugate.storage.locks import ALONE, SHARED, acquire, alone, is_at

LOCK = ".lock"
CALIBRATING = ".calibrating.lock"
# A change takes the lock for the milliseconds of one line and one rename: who has it longer is stopped, or has a disk
# that hangs.
_CHANGE_SECONDS = 30
# Prune has a release alone for one rename.
_PRUNE_SECONDS = 5


@contextmanager
def locked(releases: Path) -> Iterator[None]:
    """The right to change `current`, `shadow` and the history, and to remove releases; waits for whoever has it.

    Raises ReleaseError when that takes more than half a minute, or when the directory cannot be written to.
    """
    with alone(releases / LOCK, _CHANGE_SECONDS) as holder:
        if holder is not None:
            raise ReleaseError(
                f"{releases}: {holder} has been changing it for {_CHANGE_SECONDS} s; look what that process does, end "
                "it where it hangs, and try again"
            )
        yield


@contextmanager
def calibrating(releases: Path) -> Iterator[None]:
    """The right to calibrate into a directory, which is made where needed; nothing is left of it but the release.

    Raises ReleaseError at once while another calibration runs there.
    """
    made = [folder for folder in (releases, *releases.parents) if not folder.exists()]
    releases.mkdir(parents=True, exist_ok=True)
    path = releases / CALIBRATING
    try:
        with alone(path, 0) as holder:
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


class Hold:
    """A release that is open: prune leaves it alone until `close`, or until the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        """Let go of it; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def hold(release: Path) -> Hold:
    """Keep a release from being pruned; take it before anything of the release is read. Needs no right to write.

    Raises ReleaseError when the release is not there, or is being pruned.
    """
    path = release / MANIFEST
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a named pipe must not stop us
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be opened ({error.strerror}); promote another release") from error
    try:
        got = acquire(descriptor, SHARED, _PRUNE_SECONDS)
    except OSError:  # a file system without locks, as of some object stores: serving goes before pruning
        got = True
    if not got or not is_at(descriptor, path):
        os.close(descriptor)
        raise ReleaseError(f"{release}: is being pruned; promote another release")
    return Hold(descriptor)


@contextmanager
def unheld(release: Path) -> Iterator[bool]:
    """Whether nobody has a release open; while True, nobody can open it. False also where that cannot be known."""
    try:
        descriptor = _open_to_lock(release / MANIFEST)
    except FileNotFoundError:  # no service opens what has no manifest
        yield True
        return
    try:
        yield _alone_now(descriptor)
    finally:
        os.close(descriptor)


def _open_to_lock(path: Path) -> int:
    """For writing where that may be, because NFS locks nothing alone that is open for reading."""
    flags = os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, os.O_RDWR | flags)
    except FileNotFoundError:
        raise
    except OSError:  # read-only, or another user's
        return os.open(path, os.O_RDONLY | flags)


def _alone_now(descriptor: int) -> bool:
    try:
        return acquire(descriptor, ALONE)
    except OSError:
        return False
