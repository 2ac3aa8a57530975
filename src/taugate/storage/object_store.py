"""Object storage below a URL (fsspec): small objects whole, large ones in blocks, and few errors in place of many.

Nothing is ever listed: a listing may be late, and names are known from the layout of a release or of a data set.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from taugate.errors import InputError, ReleaseError, StoreError
from taugate.storage.files import open_regular

_BLOCK = 8 << 20  # bytes: S3's own clients ask for as much at a time
# Seconds: a store answers in less than one, and a service that starts has a copy to fall back on. s3fs asks five times
# by itself, with pauses.
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 10, "retries": {"max_attempts": 0}}},
    "file": {"auto_mkdir": True},
}
# Error codes of an object that can never be read: a folder, no regular file, a socket, a link to itself.
_NOT_A_FILE = {errno.EINVAL, errno.ENXIO, errno.ELOOP}
_FRESH = {"skip_instance_cache": True, "use_listings_cache": False}  # credentials and objects may have changed


class Store:
    """The objects below a URL, by names with forward slashes.

    Attributes:
        url: Such as s3://bucket/prefix, without credentials. The constructor and every method raise StoreError where
            the store does not answer, and ReleaseError where it refuses; methods that read raise FileNotFoundError
            where there is no such object.

    Raises:
        InputError: For a URL that cannot be used.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if "@" in urlsplit(url).netloc:
            raise InputError("the URL holds credentials; leave them to the environment (docs/storage.md)")
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
        except OSError as error:  # some connect at once
            raise StoreError(f"{url}: the store does not answer ({error}); check that it is reachable") from error
        self._local = isinstance(self._files, LocalFileSystem)

    def read(self, name: str, most: int) -> bytes:
        """Read a whole object of at most `most` bytes.

        Raises:
            ReleaseError: Where it has more.
        """
        with self._translated_errors(name), self._opened(name) as source:
            content: bytes = source.read(most + 1)
        if len(content) > most:
            raise ReleaseError(f"{self.url}/{name}: more than {most} bytes; remove it, and push the release again")
        return content

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes, None where there is no such object."""
        try:
            with self._translated_errors(name):
                return int(self._files.info(self._path(name))["size"])
        except FileNotFoundError:
            return None

    def folder_names(self) -> list[str]:
        """Return the names of the folders at the URL; none where there is nothing yet."""
        try:
            with self._translated_errors(""):
                entries = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [str(each["name"]).rstrip("/").rpartition("/")[2] for each in entries if each["type"] == "directory"]

    def download(self, name: str, target: BinaryIO | None, most: int) -> tuple[int, str]:
        """Download at most `most` + 1 bytes of an object, into `target` where given; returns its size and SHA-256."""
        with self._opened(name) as source:

            def read(size: int) -> bytes:
                with self._translated_errors(name):
                    block: bytes = source.read(size)
                    return block

            return copy_bounded(read, target, most)

    def upload(self, path: Path, name: str) -> None:
        """Upload a file, in parts where it is large."""
        with self._translated_errors(name, missing=True):
            self._files.put_file(str(path), self._path(name))

    def write(self, name: str, content: bytes) -> None:
        """Write a small object in one step."""
        with self._translated_errors(name, missing=True):
            if self._local:  # without a transaction, only a folder would show the object half written
                with self._files.transaction:
                    self._files.pipe_file(self._path(name), content)
            else:
                self._files.pipe_file(self._path(name), content)

    def remove(self, name: str) -> None:
        """Remove an object; there need be none."""
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
                    found = self._files.open(self._path(name), "rb", block_size=_BLOCK, cache_type="readahead")
                    source = opened.enter_context(found)
            yield source

    def _local_path(self, name: str) -> Path:
        """Return the path of an object in a local folder.

        Raises:
            ReleaseError: For a link out of the folder.
        """
        path = Path(os.path.realpath(self._path(name)))
        if not path.is_relative_to(os.path.realpath(self._root)):
            raise ReleaseError(f"{self.url}/{name}: a link to somewhere else; put the file itself there")
        return path

    @contextmanager
    def _translated_errors(self, name: str, *, missing: bool = False) -> Iterator[None]:
        """Raise whatever the store raises as ReleaseError or StoreError.

        Each file system of fsspec has exceptions of its own, and of its HTTP client, with no common base.

        Args:
            missing: Whether FileNotFoundError is translated, too.
        """
        try:
            yield
        except ReleaseError:
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not missing:
                raise
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise (ReleaseError if _is_refusal(error) else StoreError)(
                f"{self.url}/{name}: the store does not answer or refuses ({reason}); check that it is reachable, and "
                "that the environment has credentials for it"
            ) from error


def copy_bounded(read: Callable[[int], bytes], target: BinaryIO | None, most: int) -> tuple[int, str]:
    """Copy a stream in blocks, at most `most` + 1 bytes; returns how many were copied, and their SHA-256.

    Args:
        read: Returns the next bytes, at most as many as it is asked for, and none at the end.
        target: Where they are written, None for nowhere.
        most: Bytes that are expected at most.
    """
    digest, size = hashlib.sha256(), 0
    while size <= most and (block := read(min(_BLOCK, most + 1 - size))):
        digest.update(block)
        size += len(block)
        if target is not None:
            target.write(block)
    return size, digest.hexdigest()


def _is_refusal(error: Exception) -> bool:
    """Tell whether an error is an answer of the store that would be the same again.

    Missing credentials are none: those of a machine's role come from a service that may be down as well.
    """
    if isinstance(error, OSError) and error.errno in _NOT_A_FILE:
        return True
    if type(error).__name__ == "ParamValidationError":  # a bucket's name; botocore is not there for other stores
        return True
    return isinstance(error, FileNotFoundError | PermissionError | ValueError)
