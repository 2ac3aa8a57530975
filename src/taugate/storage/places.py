"""Places for results of many files: a local folder, or object storage below a URL."""

from pathlib import Path
from typing import BinaryIO, Protocol

from taugate.storage.files import atomic_write, open_regular
from taugate.storage.folders import staging_folder
from taugate.storage.object_store import Store, copy_bounded

_STAGING = ".writing-"


class Place(Protocol):
    """Files by names with forward slashes.

    Methods raise OSError for a folder, and StoreError and ReleaseError, like `Store`, for a URL. Methods that read
    raise FileNotFoundError if there is no such file.
    """

    url: str

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a file of at most `max_bytes` bytes; a larger file is an error."""
        ...

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, None if there is no such file."""
        ...

    def download(self, name: str, target: BinaryIO | None, max_bytes: int) -> tuple[int, str]:
        """Copy at most `max_bytes` + 1 bytes of a file into `target`, if any; returns its size and SHA-256."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file atomically: readers see the old or the new content, never a part."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        ...


class Folder:
    """A local folder; several processes may write the same file at once, and the last one wins.

    Args:
        path: Path of the folder, which is created with the first file.
    """

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self._path = path

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a file of at most `max_bytes` bytes.

        Raises:
            OSError: If it is larger.
        """
        with open_regular(self._path / name) as (file, size):
            if size > max_bytes:
                raise OSError(f"{self._path / name}: more than {max_bytes} bytes")
            return file.read(max_bytes)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, None if there is no such file."""
        try:
            return (self._path / name).stat().st_size
        except FileNotFoundError:
            return None

    def download(self, name: str, target: BinaryIO | None, max_bytes: int) -> tuple[int, str]:
        """Copy at most `max_bytes` + 1 bytes of a file into `target`, if any; returns its size and SHA-256."""
        with open_regular(self._path / name) as (file, _):
            return copy_bounded(file.read, target, max_bytes)

    def write(self, name: str, content: bytes) -> None:
        """Write a file under a temporary name, then rename it; files of killed writers are removed."""
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with staging_folder(self._path, _STAGING) as staging:
            atomic_write(path, content, folder=staging)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        (self._path / name).unlink(missing_ok=True)


def open_place(location: str) -> Place:
    """Return the place that a path or a URL names; nothing is written yet.

    Raises:
        InputError: If the URL cannot be used.
        StoreError: If the store does not respond.
    """
    return Store(location) if "://" in location else Folder(Path(location))
