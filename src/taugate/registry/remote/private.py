"""Private copies of releases: what was verified in a folder that only this user can change is what is opened.

Signature and digests hold at the moment of checking, and files are opened by name after that. Whoever may write to a
releases directory could exchange one in between, or write into one that is open. So a service that trusts keys opens a
copy, in a folder that nobody else may enter.
"""

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import release_ids
from taugate.registry.lock import ReadLock, lock_for_reading, try_lock_for_removal
from taugate.registry.remote.download import DirectorySource, install_release
from taugate.retrieval.release.signature import TrustedKeys
from taugate.storage.locks import exclusive_lock

PRIVATE = ".private"  # below the folder that is named: nothing but copies is ever removed from it
_LOCK = ".lock"
_COPY_SECONDS = 600  # for another worker's copy: 10 GB take two minutes on a disk that writes 100 MB/s
_LEAVE_SECONDS = 5  # for another worker that closes its copy, which takes milliseconds
_REMEDY = "name another folder in TAUGATE_RELEASES_COPY"


class PrivateFolder:
    """A folder of this user that nobody else may enter, made where there is none.

    Its `path` leads through an open descriptor (Linux), so that no other folder of that name is entered, whoever may
    rename what lies above it.

    Attributes:
        folder: Where it is.

    Raises:
        InputError: Where the folder is somebody else's, or others may enter it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(f"{folder}: cannot keep a private copy ({error.strerror}); {_REMEDY}") from error
        self._descriptor: int | None = descriptor
        self.path = Path(f"/proc/self/fd/{descriptor}")
        found = os.fstat(descriptor)
        problem = None
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            problem = f"others may enter it; `chmod 700` where it is this user's, or {_REMEDY}"
        elif not self.path.is_dir():
            problem = "cannot be entered by its descriptor, which takes /proc, as Linux has it"
        if problem is not None:
            self.close()
            raise InputError(f"{folder}: {problem}")

    def close(self) -> None:
        """Close the descriptor, after which the path leads nowhere; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class PrivateRelease:
    """A release in a private folder, open until `close`; `release` is its folder.

    Attributes:
        folder: The private folder, which is closed with it.
        name: The release's id.
        lock: A lock on the release, where it is to be removed once nobody has it open any more.
    """

    def __init__(self, folder: PrivateFolder, name: str, lock: ReadLock | None = None) -> None:
        self.release = folder.path / name
        self._folder, self._lock = folder, lock

    def close(self) -> None:
        """Release the lock, and remove copies that nobody uses; a second time does nothing.

        What is mapped into memory stays readable.
        """
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            with suppress(ReleaseError, OSError), exclusive_lock(self._folder.path / _LOCK, _LEAVE_SECONDS) as holder:
                if holder is None:  # else it is left to whoever copies next
                    _remove_unused(self._folder.path)
        self._folder.close()


def copy_to_private(release: Path, folder: Path, trusted: TrustedKeys) -> PrivateRelease:
    """Copy a release into a private folder, where no other process of this user has it open from there.

    One copy serves all workers, and is removed when the last of them closes it; copies of processes that were killed
    are removed first.

    Args:
        release: The release's folder.
        folder: The private folder, made where needed.
        trusted: Keys of which one must have signed the release.

    Raises:
        ReleaseError: , and OSError when the disk is full.
        InputError: , and OSError when the disk is full.
    """
    private = PrivateFolder(folder)
    try:
        with exclusive_lock(private.path / _LOCK, _COPY_SECONDS) as holder:
            if holder is not None:
                raise ReleaseError(f"{folder}: {holder} has been copying for {_COPY_SECONDS} s; check what it does")
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
    """Open a release of a directory that is a private folder itself, as the copy of a URL is.

    Args:
        release: The release's folder.

    Raises:
        InputError: Where its directory is not private, ReleaseError where a file of the release is somebody else's, or
            has another name by which it can be changed.
    """
    private = PrivateFolder(release.parent)
    opened = PrivateRelease(private, release.name)
    for path in opened.release.rglob("*"):
        found = path.lstat()
        if found.st_uid != os.geteuid() or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1):
            name = path.relative_to(opened.release)
            opened.close()
            raise ReleaseError(
                f"{release / name}: others can change it; remove {release.parent}, and the service makes it again"
            )
    return opened


def _remove_unused(folder: Path) -> None:
    """Remove copies that nobody has open; the caller has the lock."""
    for name in release_ids(folder):
        with try_lock_for_removal(folder / name) as locked:
            if locked:
                shutil.rmtree(folder / name, ignore_errors=True)
