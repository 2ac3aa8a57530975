"""Where a command puts a result of many files: a folder of this machine, or object storage below a URL."""

from pathlib import Path
from typing import BinaryIO, Protocol

from taugate.storage.files import atomic_write, open_regular
from taugate.storage.folders import staging_folder
from taugate.storage.object_store import Store, copy_bounded

_STAGING = ".writing-"


class Place(Protocol):
    """Files by names with forward slashes.

    Methods raise OSError in a folder; StoreError and ReleaseError, as `Store` does, below a URL. Those that read raise
    FileNotFoundError where there is no such file.
    """

    url: str

    def read(self, name: str, most: int) -> bytes:
        """Read a whole file of at most `most` bytes; more is an error."""
        ...

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, None where there is no such file."""
        ...

    def download(self, name: str, target: BinaryIO | None, most: int) -> tuple[int, str]:
        """Copy at most `most` + 1 bytes of a file, into `target` where given; returns its size and SHA-256."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file in one step, replacing what is there: readers see the old one or the new one, never a part."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; there need be none."""
        ...


class Folder:
    """A folder as a place; several processes may write the same file at once, and the last one wins.

    Attributes:
        path: Of the folder, which is made with the first file that is written.
    """

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self._path = path

    def read(self, name: str, most: int) -> bytes:
        """Read a whole file of at most `most` bytes.

        Raises:
            OSError: Where it has more.
        """
        with open_regular(self._path / name) as (file, size):
            if size > most:
                raise OSError(f"{self._path / name}: more than {most} bytes")
            return file.read(most)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, None where there is no such file."""
        try:
            return (self._path / name).stat().st_size
        except FileNotFoundError:
            return None

    def download(self, name: str, target: BinaryIO | None, most: int) -> tuple[int, str]:
        """Copy at most `most` + 1 bytes of a file, into `target` where given; returns its size and SHA-256."""
        with open_regular(self._path / name) as (file, _):
            return copy_bounded(file.read, target, most)

    def write(self, name: str, content: bytes) -> None:
        """Write a file under a name of its own, then rename it; what killed writers left is removed."""
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with staging_folder(self._path, _STAGING) as staging:
            atomic_write(path, content, folder=staging)

    def remove(self, name: str) -> None:
        """Remove a file; there need be none."""
        (self._path / name).unlink(missing_ok=True)


def open_place(location: str) -> Place:
    """Return the place that a folder or a URL names; nothing is written yet.

    Raises:
        InputError: .
        StoreError: .
    """
    return Store(location) if "://" in location else Folder(Path(location))
