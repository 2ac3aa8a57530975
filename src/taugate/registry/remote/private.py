"""Private copies of releases, so that the files that were verified are the files that are opened.

Signature and digests are checked at one moment, and files are opened by name later. Another user with write access to a
releases directory could replace a file in between, or write to an open one. So a service that trusts keys opens a copy,
in a folder that only its own user can enter.
"""

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import release_ids
from taugate.registry.lock import lock_for_reading, try_lock_for_removal
from taugate.registry.remote.download import DirectorySource, install_release
from taugate.retrieval.release.signature import TrustedKeys
from taugate.storage.locks import exclusive_lock

PRIVATE = ".private"  # subfolder of the configured folder; only copies are ever removed from it
_LOCK = ".lock"
_COPY_SECONDS = 600  # wait for another worker's copy: 10 GB take two minutes on a disk that writes 100 MB/s
_CLOSE_SECONDS = 5  # wait for another worker that closes its copy, which takes milliseconds
_REMEDY = "name another folder in TAUGATE_RELEASES_COPY"


@contextmanager
def private_folder(folder: Path) -> Iterator[Path]:
    """Open a folder that only this user can enter, created if needed.

    Yields its path through an open descriptor, so that renaming a parent folder cannot redirect it. On macOS, which has
    no such paths for folders, it is the resolved path.

    Raises:
        InputError: If the folder belongs to another user, or others can enter it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{folder}: cannot keep a private copy ({error.strerror}); {_REMEDY}") from error
    try:
        path = Path(f"/proc/self/fd/{descriptor}") if sys.platform == "linux" else folder.resolve()
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise InputError(f"{folder}: other users may enter it; `chmod 700` it if it is this user's, or {_REMEDY}")
        if not path.is_dir():
            raise InputError(f"{folder}: cannot be opened through its descriptor, which needs /proc (Linux)")
        yield path
    finally:
        os.close(descriptor)


@contextmanager
def private_copy(release: Path, folder: Path, trusted: TrustedKeys) -> Iterator[Path]:
    """Copy a release into a private folder, unless another process of this user has it open from there.

    Yields the folder of the copy. One copy serves all workers, and is removed when the last of them closes it; copies
    left by killed processes are removed first. Files that are mapped into memory remain readable.

    Args:
        release: Folder of the release.
        folder: The private folder, created if needed.
        trusted: Keys of which one must have signed the release.

    Raises:
        ReleaseError: If the release does not verify, or another process takes too long to copy.
        InputError: If the folder is not private.
        OSError: If the disk is full.
    """

    def busy(holder: str) -> ReleaseError:
        return ReleaseError(f"{folder}: {holder} has been copying for {_COPY_SECONDS} s; end that process if it hangs")

    with private_folder(folder) as private:
        copy = private / release.name
        try:
            with exclusive_lock(private / _LOCK, _COPY_SECONDS, busy):
                _remove_unused(private)
                if not copy.exists():
                    install_release(DirectorySource(release.parent), private, release.name, trusted)
                lock = lock_for_reading(copy)
        except ReleaseError as error:
            raise type(error)(str(error).replace(str(private), str(folder))) from error
        try:
            with lock:
                yield copy
        finally:
            with suppress(ReleaseError, OSError), exclusive_lock(private / _LOCK, _CLOSE_SECONDS, ReleaseError):
                _remove_unused(private)


@contextmanager
def private_in_place(release: Path) -> Iterator[Path]:
    """Open a release of a directory that is itself private, as the copy of a URL is; yields its folder.

    Raises:
        InputError: If the directory is not private.
        ReleaseError: If a file of the release belongs to another user, or has a second name by which it can be changed.
    """
    with private_folder(release.parent) as directory:
        opened = directory / release.name
        for path in opened.rglob("*"):
            status = path.lstat()
            if status.st_uid != os.geteuid() or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
                raise ReleaseError(
                    f"{release / path.relative_to(opened)}: other users can change it; remove {release.parent}, and "
                    "the service recreates it"
                )
        yield opened


def _remove_unused(folder: Path) -> None:
    """Remove copies that no process has open; the caller holds the lock."""
    for name in release_ids(folder):
        with try_lock_for_removal(folder / name) as locked:
            if locked:
                shutil.rmtree(folder / name, ignore_errors=True)
