"""Regular files: opened safely, read up to a limit, replaced atomically, appended to and digested."""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

import orjson
from safetensors import SafetensorError

from taugate.errors import InputError

# Links are not followed, and opening a pipe without a writer does not block. Windows has neither flag.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)

# Error codes of volumes that lack a call: SMB, FUSE, vfat, 9p and mounts of object storage lack some.
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY})

_QUOTED = re.compile(r"(?:^|: )([^:]+) \(os error \d+\)")  # Rust's format of system errors

_MAX_BYTES = 64 << 10  # some are JSON Web Tokens

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[BufferedReader, int]]:
    """Open a regular file for reading; yields it with its size in bytes."""
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file, status.st_size
    finally:
        os.close(descriptor)


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Read a whole regular file of at most `max_bytes` bytes; `path`: file to read; see `open_regular`."""
    with open_regular(path) as (file, _):
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(f"{path}: more than {max_bytes} bytes")
    return content


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file in the error of a write, in which the system does not."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def atomic_write(path: Path, content: bytes, *, mode: int = 0o644, folder: Path | None = None) -> None:
    """Replace a file atomically: readers, also after a power failure, see the old content or the new one.

    Two processes must not write the same path at once; callers hold a lock or use their own staging folder.

    Args:
        path: File to write, which need not exist.
        mode: Permission bits, independent of the umask, if the volume has any (`set_mode`). By default every user may
            read the file, because the service may run as another user.
        folder: Folder for the temporary file, on the same file system; by default that of `path`.
    """
    partial = (folder or path.parent) / f".{path.name}.new"
    partial.unlink(missing_ok=True)  # left by a killed writer, which may be another user
    try:
        # Created with the final bits at most, because a volume may not allow changing them.
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with writing(path), os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            set_mode(file.fileno(), mode)
            sync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file that has no readers yet, and wait until it is on the disk."""
    with writing(path), path.open("wb") as file:
        file.write(content)
        file.flush()
        sync(file.fileno())


def set_mode(target: int | Path, mode: int) -> None:
    """Set permission bits if the volume has any and this user may change them; otherwise those of the mount apply."""
    try:
        os.chmod(target, mode)  # noqa: PTH101 (a descriptor has no path)
    except OSError as error:
        if error.errno not in UNSUPPORTED | {errno.EPERM, errno.EACCES, errno.EROFS}:
            raise


def sync(descriptor: int) -> None:
    """Wait until an open file, or the names in an open folder, are on the disk, if the volume supports it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def disk_failure(error: Exception) -> str | None:
    """Return the system's message for a failure to write files; None for an error of another kind."""
    # Only Python's own code raises OSError: safetensors and tokenizers quote the system in their own errors, and
    # PyTorch raises a RuntimeError if it cannot finish a file.
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if quoted := _QUOTED.search(str(error)):
        return quoted[1]
    if isinstance(error, SafetensorError):
        return str(error)
    if "inline_container.cc" in str(error):  # raised by torch.save, without a system error
        return "a file cannot be written completely; the disk may be full"
    return None


def append_lines(descriptor: int, lines: bytes) -> None:
    """Append all lines or none to a log that several processes share.

    If the last writer was killed within a line, the torn line is ended first. The caller holds a lock on the log, and
    calls fsync if the lines must survive a power failure.

    Args:
        descriptor: Descriptor of the log, open for reading and appending (O_RDWR | O_APPEND).
        lines: Complete lines with line breaks.
    """
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        lines = b"\n" + lines
    try:
        while lines:
            lines = lines[os.write(descriptor, lines) :]
    except OSError:
        with suppress(OSError):  # pipes cannot be truncated
            os.ftruncate(descriptor, size)
        raise


def sync_folder(folder: Path) -> None:
    """Make new, renamed and removed files of a folder survive a power failure, if the volume supports it (`sync`)."""
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
    """Return one hexadecimal SHA-256 of several files of a folder and of their relative names, in any order."""
    return sha256_json({name: sha256_file(folder / name) for name in names})


def sha256_json(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    """Return the hexadecimal SHA-256 of a JSON value in canonical form: compact, sorted keys, shortest numbers."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def read_secret(path: Path, setting: str) -> str:
    """Read a secret without the trailing newline that editors add."""
    try:
        # Kubernetes mounts the files of a Secret as symbolic links.
        return read_bounded(path.resolve(), _MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{setting}: {path} cannot be read as text; name a file with the secret alone") from error
