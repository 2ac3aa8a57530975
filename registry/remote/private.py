"""A release that only this user can change: what was checked in it is what is opened.

Signature and digests hold at the moment of checking, and files are opened by name after that. Whoever may write to a
releases directory could exchange one in between, or write into one that is open. So a service that trusts keys opens a
copy, in a folder that nobody else may enter.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import release_ids
from taugate.registry.lock import Hold, hold, unheld
from taugate.registry.remote.copy import add
from taugate.retrieval.release.signature import TrustedKeys
from taugate.storage.files import open_plain
from taugate.storage.locks import alone
from taugate.storage.object_store import copy_bounded

PRIVATE = ".private"  # below the folder that is named: nothing but copies is ever removed from it
_LOCK = ".lock"
_COPY_SECONDS = 600  # for another worker's copy: 10 GB take two minutes on a disk that writes 100 MB/s
_LEAVE_SECONDS = 5  # for another worker that lets go, which takes milliseconds
_REMEDY = "name another folder in TAUGATE_RELEASES_COPY"


class PrivateFolder:
    """A folder of this user that nobody else may enter, made where there is none.

    path: through an open descriptor (Linux), so that no other folder of that name is entered, whoever may rename what
    lies above it. Raises InputError where the folder is somebody else's, or others may enter it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(f"{folder}: no private copy can be kept there ({error.strerror}); {_REMEDY}") from error
        self._descriptor: int | None = descriptor
        self.path = Path(f"/proc/self/fd/{descriptor}")
        found = os.fstat(descriptor)
        said = None
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            said = f"others may enter it; `chmod 700` where it is this user's, or {_REMEDY}"
        elif not self.path.is_dir():
            said = "cannot be entered by its descriptor, which takes /proc, as Linux has it"
        if said is not None:
            self.close()
            raise InputError(f"{folder}: {said}")

    def close(self) -> None:
        """The path leads nowhere from now on; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class OwnRelease:
    """A release in a private folder. release: its folder; hold: where it is to be removed once nobody has it open."""

    def __init__(self, folder: PrivateFolder, name: str, hold: Hold | None = None) -> None:
        self.release = folder.path / name
        self._folder, self._hold = folder, hold

    def close(self) -> None:
        """Let go of it; a second time does nothing. What is mapped stays readable."""
        if self._hold is not None:
            self._hold.close()
            self._hold = None
            with suppress(ReleaseError, OSError), alone(self._folder.path / _LOCK, _LEAVE_SECONDS) as holder:
                if holder is None:  # else it is left to whoever copies next
                    _clear(self._folder.path)
        self._folder.close()


def copied(release: Path, folder: Path, trusted: TrustedKeys) -> OwnRelease:
    """Copy a release into a private folder, where no other process of this user has it open from there.

    One copy serves all workers, and is removed when the last of them lets go of it; copies of processes that were
    killed are removed first. trusted: one of these keys must have signed it. Raises ReleaseError, InputError, and
    OSError when the disk is full.
    """
    private = PrivateFolder(folder)
    try:
        with alone(private.path / _LOCK, _COPY_SECONDS) as holder:
            if holder is not None:
                raise ReleaseError(f"{folder}: {holder} has been copying for {_COPY_SECONDS} s; look what it does")
            _clear(private.path)
            if not (private.path / release.name).exists():
                add(_Directory(release.parent), private.path, release.name, trusted)
            return OwnRelease(private, release.name, hold(private.path / release.name))
    except ReleaseError as error:
        private.close()
        raise type(error)(str(error).replace(str(private.path), str(folder))) from error
    except BaseException:
        private.close()
        raise


def entered(release: Path) -> OwnRelease:
    """A release of a directory that is a private folder itself, as the copy of a URL is.

    Raises InputError where it is not, ReleaseError where a file of the release is somebody else's, or has another name
    by which it can be changed.
    """
    private = PrivateFolder(release.parent)
    own = OwnRelease(private, release.name)
    for path in own.release.rglob("*"):
        found = path.lstat()
        if found.st_uid != os.geteuid() or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1):
            name = path.relative_to(own.release)
            own.close()
            raise ReleaseError(f"{release / name}: others can change it; remove {release.parent}, which is made again")
    return own


def _clear(folder: Path) -> None:
    """Remove copies that nobody has open; the caller has the lock."""
    for name in release_ids(folder):
        with unheld(folder / name) as free:
            if free:
                shutil.rmtree(folder / name, ignore_errors=True)


class _Directory:
    """A releases directory to fetch from."""

    def __init__(self, releases: Path) -> None:
        self.url = str(releases)

    def read(self, name: str, most: int) -> bytes:
        """As Source.read."""
        with self._opened(name) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise ReleaseError(f"{self.url}/{name}: more than {most} bytes; put the release there again")
        return content

    def download(self, name: str, target: BinaryIO | None, most: int) -> tuple[int, str]:
        """As Source.download."""
        with self._opened(name) as file:
            return copy_bounded(file.read, target, most)

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        with ExitStack() as stack:
            try:
                file, _ = stack.enter_context(open_plain(Path(self.url, name)))
            except FileNotFoundError:
                raise
            except OSError as error:
                said = error.strerror or error
                raise ReleaseError(
                    f"{self.url}/{name}: cannot be read ({said}); put the release there again"
                ) from error
            yield file
