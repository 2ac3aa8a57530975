"""Object storage below a URL (fsspec), and places for results of many files: a local folder, or such a URL.

Objects are never listed, because listings may be stale; names follow from the layout of a release or a data set.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from taugate.errors import InputError, ReleaseError, StoreError
from taugate.storage.files import Json, atomic_write, open_regular
from taugate.storage.folders import staging_folder

_BLOCK = 8 << 20  # bytes, as S3's own clients request at a time
# Seconds. A store responds within one, and a starting service can fall back on its copy. s3fs itself makes five
# attempts with pauses.
_OPTIONS: dict[str, dict[str, Json]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 10, "retries": {"max_attempts": 0}}},
    "file": {"auto_mkdir": True},
}
# Error codes of objects that can never be read: a folder, an irregular file, a socket, a link to itself.
_NOT_A_FILE = {errno.EINVAL, errno.ENXIO, errno.ELOOP}
_FRESH = {"skip_instance_cache": True, "use_listings_cache": False}  # credentials and objects may have changed

_STAGING = ".writing-"


class Store:
    """The objects below a URL such as s3://bucket/prefix, by names with forward slashes.

    The constructor and all methods raise StoreError if the store does not respond, and ReleaseError if it refuses.
    Methods that read raise FileNotFoundError if there is no such object. A URL that cannot be used is an InputError.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if "@" in urlsplit(url).netloc:
            raise InputError("the URL holds credentials; pass them by the environment (docs/releases.md)")
        try:
            from fsspec.core import url_to_fs
            from fsspec.implementations.local import LocalFileSystem
        except ImportError as error:
            raise InputError(f"{url}: object storage needs fsspec: pip install 'taugate[storage]'") from error
        protocol = url.partition("://")[0]
        try:
            self._files, self._root = url_to_fs(self.url, **_OPTIONS.get(protocol, {}), **_FRESH)
        except ImportError as error:
            extra = "pip install 'taugate[storage]'" if protocol == "s3" else f"fsspec says: {error}"
            raise InputError(f"{url}: the package for {protocol}:// is missing; {extra}") from error
        except ValueError as error:
            raise InputError(f"{url}: {error}; give a URL such as s3://bucket/prefix") from error
        except OSError as error:  # some file systems connect at once
            raise StoreError(f"{url}: the store does not respond ({error}); check that it is reachable") from error
        self._local = isinstance(self._files, LocalFileSystem)

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read an object of at most `max_bytes` bytes.

        Raises:
            ReleaseError: If it is larger.
        """
        with self._translated_errors(name), self._opened(name) as source:
            content: bytes = source.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ReleaseError(f"{self.url}/{name}: more than {max_bytes} bytes; remove it, and push the release again")
        return content

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes, None if there is no such object."""
        try:
            with self._translated_errors(name):
                return int(self._files.info(self._path(name))["size"])
        except FileNotFoundError:
            return None

    def folder_names(self) -> list[str]:
        """Return the names of the folders at the URL; empty if there is nothing yet."""
        try:
            with self._translated_errors(""):
                entries = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in entries if entry["type"] == "directory"]

    def download(self, name: str, target: BinaryIO | None, max_bytes: int) -> tuple[int, str]:
        """Download at most `max_bytes` + 1 bytes of an object into `target`, if any; returns size and SHA-256."""
        with self._opened(name) as source:

            def read(size: int) -> bytes:
                with self._translated_errors(name):
                    block: bytes = source.read(size)
                    return block

            return copy_bounded(read, target, max_bytes)

    def upload(self, path: Path, name: str) -> None:
        """Upload a file, in parts if it is large."""
        with self._translated_errors(name, missing=True):
            self._files.put_file(str(path), self._path(name))

    def write(self, name: str, content: bytes) -> None:
        """Write a small object atomically."""
        with self._translated_errors(name, missing=True):
            if self._local:  # without a transaction, a folder would show a half-written object
                with self._files.transaction:
                    self._files.pipe_file(self._path(name), content)
            else:
                self._files.pipe_file(self._path(name), content)

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        with suppress(FileNotFoundError), self._translated_errors(name):
            self._files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _opened(self, name: str) -> Iterator[Any]:
        with ExitStack() as opened:
            with self._translated_errors(name):
                if self._local:
                    source: Any = opened.enter_context(open_regular(self._local_path(name)))[0]
                else:
                    remote_file = self._files.open(self._path(name), "rb", block_size=_BLOCK, cache_type="readahead")
                    source = opened.enter_context(remote_file)
            yield source

    def _local_path(self, name: str) -> Path:
        """Return the path of an object in a local folder. Raises ReleaseError if it is a link out of the folder."""
        path = Path(os.path.realpath(self._path(name)))
        if not path.is_relative_to(os.path.realpath(self._root)):
            raise ReleaseError(f"{self.url}/{name}: a link to somewhere else; put the file itself there")
        return path

    @contextmanager
    def _translated_errors(self, name: str, *, missing: bool = False) -> Iterator[None]:
        """Raise exceptions of the store as ReleaseError or StoreError."""
        # Every file system of fsspec has its own exceptions, and those of its HTTP client, without a common base.
        try:
            yield
        except ReleaseError:
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not missing:
                raise
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise (ReleaseError if _is_refusal(error) else StoreError)(
                f"{self.url}/{name}: the store does not respond or refuses ({reason}); check that it is reachable, and "
                "that the environment has credentials for it"
            ) from error


def copy_bounded(read: Callable[[int], bytes], target: BinaryIO | None, max_bytes: int) -> tuple[int, str]:
    """Copy at most `max_bytes` + 1 bytes of a stream in blocks; returns the number of bytes and their SHA-256.

    Args:
        read: Returns the next bytes, at most the given number, and none at the end.
        target: File to write to; None to discard the bytes.
        max_bytes: Largest expected size.
    """
    digest, size = hashlib.sha256(), 0
    while size <= max_bytes and (block := read(min(_BLOCK, max_bytes + 1 - size))):
        digest.update(block)
        size += len(block)
        if target is not None:
            target.write(block)
    return size, digest.hexdigest()


def _is_refusal(error: Exception) -> bool:
    """Return whether an error is a reply of the store that a retry would not change."""
    # Missing credentials are not, because a machine's role gets them from a service that may be down.
    if isinstance(error, OSError) and error.errno in _NOT_A_FILE:
        return True
    if (
        type(error).__name__ == "ParamValidationError"
    ):  # invalid bucket name; botocore is not installed for other stores
        return True
    return isinstance(error, FileNotFoundError | PermissionError | ValueError)


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
    """A local folder; several processes may write the same file at once, and the last one wins."""

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self._path = path

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a file of at most `max_bytes` bytes. Raises OSError if it is larger."""
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
    """Return the place that a path or a URL names; nothing is written yet."""
    return Store(location) if "://" in location else Folder(Path(location))
