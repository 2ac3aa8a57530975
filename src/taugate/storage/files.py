"""Regular files: opened without surprises, read up to a limit, replaced in one step, appended to, and digested."""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import orjson
from safetensors import SafetensorError

# A link is not followed, and a pipe that nobody writes to does not block whoever opens it. Windows has neither.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)

# What a volume answers that lacks a call: SMB, FUSE, vfat, 9p and mounts of object storage lack some.
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY})

_QUOTED = re.compile(r"(?:^|: )([^:]+) \(os error \d+\)")  # how Rust writes an error of the system


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[BufferedReader, int]]:
    """Open a regular file for reading; yields it with its size in bytes.

    Args:
        path: The file. A symbolic link, a pipe, a device or a folder is refused.

    Raises:
        OSError: , which is FileNotFoundError where there is no such file.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file, found.st_size
    finally:
        os.close(descriptor)


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Read a whole regular file of at most `max_bytes` bytes.

    Args:
        path: The file, as in `open_regular`.
        max_bytes: A longer file is an error, and never read to its end.

    Raises:
        OSError: .
    """
    with open_regular(path) as (file, _):
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(f"{path}: more than {max_bytes} bytes")
    return content


def atomic_write(path: Path, content: bytes, *, mode: int = 0o644, folder: Path | None = None) -> None:
    """Replace a file in one step: a reader, or a machine that loses power, sees the old content or the new one.

    Two processes must not write the same path at once; callers hold a lock or a staging folder of their own.

    Args:
        path: The file, which need not exist.
        content: All of its new bytes.
        mode: Its permission bits, whatever the umask, if the volume has any (`set_mode`); by default everybody may read
            it, as whoever serves may be another user.
        folder: Where it is written before it gets its name, on the same file system; by default beside `path`.

    Raises:
        OSError: ; `path` is then as it was.
    """
    partial = (folder or path.parent) / f".{path.name}.new"
    partial.unlink(missing_ok=True)  # of a writer that was killed, who may be another user
    try:
        # Created with no more than its bits, as a volume may not let them be changed.
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            set_mode(file.fileno(), mode)
            sync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file that nobody reads yet, and wait until it is on the disk.

    Args:
        path: The file, replaced where it exists.
        content: All of its bytes.

    Raises:
        OSError: .
    """
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        sync(file.fileno())


def set_mode(target: int | Path, mode: int) -> None:
    """Set permission bits, if the volume has any and this user may change them; else those of the mount hold.

    Args:
        target: A descriptor or a path.
        mode: The bits.

    Raises:
        OSError: For any other failure.
    """
    try:
        os.chmod(target, mode)  # noqa: PTH101 (a descriptor has no path)
    except OSError as error:
        if error.errno not in UNSUPPORTED | {errno.EPERM, errno.EACCES, errno.EROFS}:
            raise


def sync(descriptor: int) -> None:
    """Wait until a file, or the names in a folder, are on the disk, if the volume can do that.

    Args:
        descriptor: Of the open file or folder.

    Raises:
        OSError: , as when the disk is full.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def disk_failure(error: Exception) -> str | None:
    """Return what went wrong with a file, in the system's words; None for an error of another kind.

    Only Python's own code raises OSError: safetensors and tokenizers quote the system in errors of theirs, and PyTorch
    raises a RuntimeError when it cannot finish a file.

    Args:
        error: Whatever was raised while files were written.
    """
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if quoted := _QUOTED.search(str(error)):
        return quoted[1]
    if isinstance(error, SafetensorError):
        return str(error)
    if "inline_container.cc" in str(error):  # where torch.save writes; it counts bytes, and knows no system
        return "a file cannot be written whole, as on a full disk"
    return None


def append_lines(descriptor: int, lines: bytes) -> None:
    """Append lines to a log that several processes share, all of them or none.

    Where the last writer was killed in the middle of a line, its torn line is ended first, so that it spoils no other.
    The caller has the log locked, and calls fsync where the lines must survive a power cut.

    Args:
        descriptor: Of the log, open for reading and for appending (O_RDWR | O_APPEND).
        lines: Whole lines, each with its line break.

    Raises:
        OSError: , as where the disk is full.
    """
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        lines = b"\n" + lines
    try:
        while lines:
            lines = lines[os.write(descriptor, lines) :]
    except OSError:
        with suppress(OSError):  # a pipe, for one, cannot be truncated
            os.ftruncate(descriptor, size)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut: those of new, renamed and removed files.

    Not every volume can do that (`sync`).

    Raises:
        OSError: .
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(folder: Path, names: Iterable[str]) -> str:
    """Return one SHA-256 of several files of a folder and of their names, in hexadecimal.

    Args:
        folder: Where the files are.
        names: Of the files, relative to it; their order does not matter.
    """
    return sha256_json({name: sha256_file(folder / name) for name in names})


def sha256_json(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    """Return the SHA-256 of a JSON value in canonical form, in hexadecimal: compact, keys sorted, shortest numbers."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
