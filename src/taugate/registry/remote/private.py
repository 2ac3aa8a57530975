"""Private copies of releases, so that the files that were verified are the files that are opened.

Signature and digests are checked at one moment, and files are opened by name later. Another user with write access to a
releases directory could replace a file in between, or write to an open one. So a service that trusts keys opens a copy,
in a folder that only its own user can enter.
"""

import os
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import release_ids
from taugate.registry.lock import ReadLock, lock_for_reading, try_lock_for_removal
from taugate.registry.remote.download import DirectorySource, install_release
from taugate.retrieval.release.signature import TrustedKeys
from taugate.storage.locks import exclusive_lock

PRIVATE = ".private"  # subfolder of the configured folder; only copies are ever removed from it
_LOCK = ".lock"
_COPY_SECONDS = 600  # wait for another worker's copy: 10 GB take two minutes on a disk that writes 100 MB/s
_CLOSE_SECONDS = 5  # wait for another worker that closes its copy, which takes milliseconds
_REMEDY = "name another folder in TAUGATE_RELEASES_COPY"


class PrivateFolder:
    """A folder that only this user can enter, created if needed.

    Attributes:
        path: The folder through an open descriptor, so that renaming a parent folder cannot redirect it. On
            macOS, which has no such paths for folders, it is the resolved path.

    Raises:
        InputError: If the folder belongs to another user, or others can enter it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(f"{folder}: cannot keep a private copy ({error.strerror}); {_REMEDY}") from error
        self._descriptor: int | None = descriptor
        self.path = Path(f"/proc/self/fd/{descriptor}") if sys.platform == "linux" else folder.resolve()
        status = os.fstat(descriptor)
        problem = None
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            problem = f"other users may enter it; `chmod 700` it if it is this user's, or {_REMEDY}"
        elif not self.path.is_dir():
            problem = "cannot be opened through its descriptor, which needs /proc (Linux)"
        if problem is not None:
            self.close()
            raise InputError(f"{folder}: {problem}")

    def close(self) -> None:
        """Close the descriptor, after which the path is invalid; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class PrivateRelease:
    """A release in a private folder, open until `close`.

    Attributes:
        release: Folder of the release.
    """

    def __init__(self, folder: PrivateFolder, name: str, lock: ReadLock | None = None) -> None:
        """Own the folder, and the lock on the release if it is to be removed once it is no longer open."""
        self.release = folder.path / name
        self._folder, self._lock = folder, lock

    def close(self) -> None:
        """Release the lock, and remove unused copies; a second call does nothing.

        Files that are mapped into memory remain readable.
        """
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            with suppress(ReleaseError, OSError), exclusive_lock(self._folder.path / _LOCK, _CLOSE_SECONDS) as holder:
                if holder is None:  # else the holder removes them
                    _remove_unused(self._folder.path)
        self._folder.close()


def copy_to_private(release: Path, folder: Path, trusted: TrustedKeys) -> PrivateRelease:
    """Copy a release into a private folder, unless another process of this user has it open from there.

    One copy serves all workers, and is removed when the last of them closes it; copies left by killed processes are
    removed first.

    Args:
        release: Folder of the release.
        folder: The private folder, created if needed.
        trusted: Keys of which one must have signed the release.

    Raises:
        ReleaseError: If the release does not verify, or another process takes too long to copy.
        InputError: If the folder is not private.
        OSError: If the disk is full.
    """
    private = PrivateFolder(folder)
    try:
        with exclusive_lock(private.path / _LOCK, _COPY_SECONDS) as holder:
            if holder is not None:
                raise ReleaseError(
                    f"{folder}: {holder} has been copying for {_COPY_SECONDS} s; end that process if it hangs"
                )
            _remove_unused(private.path)
            if not (private.path / release.name).exists():
                install_release(DirectorySource(release.parent), private.path, release.name, trusted)
            return PrivateRelease(private, release.name, lock_for_reading(private.path / release.name))
    except ReleaseError as error:
        private.close()
        raise type(error)(str(error).replace(str(private.path), str(folder))) from error
    except BaseException:
        private.close()
        raise


def open_in_place(release: Path) -> PrivateRelease:
    """Open a release of a directory that is itself private, as the copy of a URL is.

    Raises:
        InputError: If the directory is not private.
        ReleaseError: If a file of the release belongs to another user, or has a second name by which it can be changed.
    """
    private = PrivateFolder(release.parent)
    opened = PrivateRelease(private, release.name)
    for path in opened.release.rglob("*"):
        status = path.lstat()
        if status.st_uid != os.geteuid() or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
            name = path.relative_to(opened.release)
            opened.close()
            raise ReleaseError(
                f"{release / name}: other users can change it; remove {release.parent}, and the service recreates it"
            )
    return opened


def _remove_unused(folder: Path) -> None:
    """Remove copies that no process has open; the caller holds the lock."""
    for name in release_ids(folder):
        with try_lock_for_removal(folder / name) as locked:
            if locked:
                shutil.rmtree(folder / name, ignore_errors=True)
