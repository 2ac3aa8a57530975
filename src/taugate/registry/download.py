"""Downloads a release from another directory or an object store, checks its files, and makes private copies.

Signature and digests are checked at one moment, and files are opened by name later: another user with write access
could replace one in between. So a service that trusts keys opens a copy, in a folder that only its own user can enter.
"""

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import release_ids
from taugate.registry.history import lock_for_reading, try_lock_for_removal
from taugate.release import layout
from taugate.release.manifest import FileRecord
from taugate.release.verify import SIGNATURE_BYTES, TrustedKeys, read_manifest
from taugate.storage.files import open_regular, set_mode, sync, sync_folder, write_synced, writing
from taugate.storage.folders import exclusive_lock, publish_folder, staging_folder
from taugate.storage.object_store import Store, copy_bounded

_REMEDY = "put the release there again"

PRIVATE = ".private"  # subfolder of the configured folder; only copies are ever removed from it
_LOCK = ".lock"
_COPY_SECONDS = 600  # wait for another worker's copy: 10 GB take two minutes on a disk that writes 100 MB/s
_CLOSE_SECONDS = 5  # wait for another worker that closes its copy, which takes milliseconds
_COPY_REMEDY = "name another folder in TAUGATE_CACHE"


class Source(Protocol):
    """A source of releases: an object store or a directory."""

    url: str

    def read(self, name: str, max_bytes: int, /) -> bytes:
        """Read a whole file.

        Raises:
            ReleaseError: If it has more than `max_bytes`.
            FileNotFoundError: If it does not exist.
        """
        ...

    def download(self, name: str, target: BinaryIO | None, max_bytes: int, /) -> tuple[int, str]:
        """Copy a file, up to `max_bytes` + 1 bytes, into `target` if given. Returns its size and SHA-256."""
        ...


class DirectorySource:
    """A releases directory as a source; all files must be regular files."""

    def __init__(self, releases: Path) -> None:
        self.url = str(releases)

    def read(self, name: str, max_bytes: int, /) -> bytes:
        """See Source.read."""
        with self._opened(name) as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ReleaseError(f"{self.url}/{name}: more than {max_bytes} bytes; {_REMEDY}")
        return content

    def download(self, name: str, target: BinaryIO | None, max_bytes: int, /) -> tuple[int, str]:
        """See Source.download."""
        with self._opened(name) as file:
            return copy_bounded(file.read, target, max_bytes)

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        with ExitStack() as stack:
            try:
                file, _ = stack.enter_context(open_regular(Path(self.url, name)))
            except FileNotFoundError:
                raise
            except OSError as error:
                reason = error.strerror or error
                raise ReleaseError(f"{self.url}/{name}: cannot be read ({reason}); {_REMEDY}") from error
            yield file


def remote_current_id(store: Store) -> str | None:
    """Return the id of a store's current release, None before the first."""
    try:
        name = store.read(layout.CURRENT, layout.POINTER_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        name = ""
    if not layout.is_release_id(name):
        raise ReleaseError(
            f"{store.url}/{layout.CURRENT}: does not hold one line with a release id; find out who wrote it, remove "
            "it, and push and promote a release again"
        )
    return name


def install_release(source: Source, releases: Path, name: str, trusted: TrustedKeys | None) -> None:
    """Download a release into a releases directory, replacing a damaged one of the same id."""
    # Raises as `download_release`.
    with staging_folder(releases, layout.STAGING_PREFIX) as staging:
        release = staging / name
        download_release(source, release, trusted)
        if (releases / name).exists():  # damaged
            (releases / name).rename(staging / "damaged")
        publish_folder(release, releases / name)
        sync_folder(releases)


def download_release(source: Source, release: Path, trusted: TrustedKeys | None) -> None:
    """Create the folder of a release and fill it; `release`: the folder to create, named by the release's id."""
    # The manifest is downloaded first and checked, with its signature if keys are given. After that, all names are
    # known to be those of the layout, and each file is checked against its size and digest.
    name = release.name
    release.mkdir()
    try:
        content = source.read(f"{name}/{layout.MANIFEST}", layout.MANIFEST_BYTES)
        write_synced(release / layout.MANIFEST, content)
        _download_signature(source, release)
        manifest = read_manifest(release, content, trusted)
    except FileNotFoundError as error:
        raise ReleaseError(f"{source.url}: holds no release {name}; put it there") from error
    except ReleaseError as error:  # name the file at the source, not its download
        raise type(error)(str(error).replace(str(release), f"{source.url}/{name}")) from error
    _check_space(release, sum(record.bytes for record in manifest.files.values()))
    for file, record in sorted(manifest.files.items()):
        _download_file(source, f"{name}/{file}", release / file, record)
    for folder in {(release / file).parent for file in manifest.files}:
        sync_folder(folder)
    set_mode(release, 0o755)


def _download_signature(source: Source, release: Path) -> None:
    try:
        write_synced(release / layout.SIGNATURE, source.read(f"{release.name}/{layout.SIGNATURE}", SIGNATURE_BYTES))
    except FileNotFoundError:
        return  # if a signature is required, the verification reports it


def _check_space(release: Path, needed: int) -> None:
    free = shutil.disk_usage(release).free
    if needed > free:
        raise ReleaseError(
            f"{release.parent.parent}: the release {release.name} takes {needed} bytes, but only {free} are free; "
            "free some space, or name another folder (TAUGATE_CACHE, --releases)"
        )


def _download_file(source: Source, name: str, path: Path, record: FileRecord) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        with writing(path), path.open("wb") as file:
            size, digest = source.download(name, file, record.bytes)
            file.flush()
            sync(file.fileno())
    except FileNotFoundError as error:
        raise ReleaseError(f"{source.url}/{name}: missing; {_REMEDY}") from error
    if size != record.bytes:
        raise ReleaseError(f"{source.url}/{name}: its size is not the manifest's {record.bytes} bytes; {_REMEDY}")
    if digest != record.sha256:
        raise ReleaseError(f"{source.url}/{name}: SHA-256 differs from the manifest's; {_REMEDY}")


@contextmanager
def private_folder(folder: Path) -> Iterator[Path]:
    """Open a folder that only this user can enter, created if needed."""
    # Yields its path through an open descriptor, so that renaming a parent folder cannot redirect it. On macOS, which
    # has no such paths for folders, it is the resolved path.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{folder}: cannot keep a private copy ({error.strerror}); {_COPY_REMEDY}") from error
    try:
        path = Path(f"/proc/self/fd/{descriptor}") if sys.platform == "linux" else folder.resolve()
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise InputError(
                f"{folder}: other users may enter it; `chmod 700` it if it is this user's, or {_COPY_REMEDY}"
            )
        if not path.is_dir():
            raise InputError(f"{folder}: cannot be opened through its descriptor, which needs /proc (Linux)")
        yield path
    finally:
        os.close(descriptor)


@contextmanager
def private_copy(release: Path, folder: Path, trusted: TrustedKeys) -> Iterator[Path]:
    """Copy a release into a private folder, unless another process of this user has it open from there."""
    # Yields the folder of the copy. One copy serves all workers, and is removed when the last of them closes it; copies
    # left by killed processes are removed first. Files that are mapped into memory remain readable.

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
    """Open a release of a directory that is itself private, as the copy of a URL is; yields its folder."""
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
