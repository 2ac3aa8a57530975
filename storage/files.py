"""Where things are kept that can be made or fetched again."""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import orjson

from taugate.storage.locks import ALONE, SHARED, acquire

# A link is not followed, and a pipe that nobody writes to does not hold up who opens it. Windows has neither.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[BufferedReader, int]]:
    """A plain file and its size in bytes. Raises OSError, FileNotFoundError where there is none."""
    descriptor = os.open(path, _FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file, found.st_size
    finally:
        os.close(descriptor)


def read_plain(path: Path, most: int) -> bytes:
    """The bytes of a plain file of at most `most`. Raises OSError, also where there are more."""
    with open_plain(path) as (file, _):
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"{path}: more than {most} bytes")
    return content


def put_plain(path: Path, content: bytes, staging: Path) -> None:
    """Replace a file in one step, readable by all; what is half written is in the folder `staging`. Raises OSError."""
    partial = staging / path.name
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.chmod(0o644)  # whoever serves may be another user
    partial.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # so that the new name survives a power cut
    finally:
        os.close(descriptor)


# A writer locks its folder right after making it; one that has been without a lock for this long has no living writer.
_UNLOCKED_SECONDS = 60
# Where nothing can be locked, age has to do: the longest fill, an export or a copy of a release, takes minutes.
_STALE_SECONDS = 24 * 3600


@contextmanager
def staging_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """An empty folder in `parent`, which is made where needed; gone afterwards unless it was published.

    What writers left that were killed is cleared away.
    """
    parent.mkdir(parents=True, exist_ok=True)
    clear_left(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            acquire(descriptor, SHARED)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def clear_left(parent: Path, prefix: str) -> None:
    """Remove the staging folders in `parent` whose writers were killed."""
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # its writer may be publishing it right now, or it is another user's
            if _is_left(left):
                shutil.rmtree(left, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    age = time.time() - folder.stat().st_mtime
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return age > _UNLOCKED_SECONDS and acquire(descriptor, ALONE)
    except OSError:  # NFS locks no folder alone
        return age > _STALE_SECONDS
    finally:
        os.close(descriptor)


def publish(folder: Path, target: Path) -> None:
    """Give a staging folder its name. Where `target` is there already, another writer made the same: that one stays."""
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(folder: Path, names: Iterable[str]) -> str:
    """Hex digest of several files of a folder, their names included."""
    return sha256_json({name: sha256_file(folder / name) for name in names})


def sha256_json(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    """Hex digest of a JSON value: compact, keys sorted, shortest form of every number."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def cache_folder() -> Path:
    """TAUGATE_CACHE, else taugate in the user's cache directory (XDG Base Directory specification)."""
    if chosen := os.environ.get("TAUGATE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taugate"
