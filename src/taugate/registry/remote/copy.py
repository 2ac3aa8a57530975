"""The local copy of releases in object storage: a releases directory that a service loads from."""

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import erasure_source
from taugate.registry.remote.download import install_release, remote_current_id
from taugate.retrieval.release.layout import CURRENT, MANIFEST, POINTER_BYTES, STAGING_PREFIX, is_release_id
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify
from taugate.storage.files import atomic_write, read_bounded
from taugate.storage.folders import staging_folder
from taugate.storage.locks import acquire_if_possible
from taugate.storage.object_store import Store

ORIGIN = "origin"  # names the URL of a copy; from a directory without it nothing is ever removed
_ORIGIN_BYTES = 4096
_LOCK = ".bring.lock"


def update_copy(url: str, copy: Path, trusted: TrustedKeys | None = None, *, repair: bool = False) -> Path:
    """Update a copy of the releases at a URL; returns it, a directory with the same `current` as the URL.

    The previous release is kept, unless documents were erased from the new one; older ones are deleted.

    Args:
        url: Where releases are pushed to.
        copy: Folder of the copy, created if needed.
        trusted: Keys of which one must have signed the release; None requires no signature.
        repair: Check a release that was copied before, and download it again if it is damaged.

    Raises:
        StoreError: If the store is not responding. The copy is then unchanged, as after the errors below.
        ReleaseError: If there is no current release, or it does not verify.
        InputError: If the URL or the copy cannot be used.
        OSError: If the disk is full.
    """
    store = Store(url)
    _claim(copy, store.url)
    name = remote_current_id(store)
    if name is None:
        raise ReleaseError(f"{store.url}: no release is current; `taugate release push --promote` makes one current")
    with _copy_lock(copy):
        if not _is_copied(copy / name, trusted, verifying=repair):
            install_release(store, copy, name, trusted)
        before = _copied_current(copy)
        if name != before:
            with staging_folder(copy, STAGING_PREFIX) as staging:
                atomic_write(copy / CURRENT, f"{name}\n".encode(), folder=staging)
            _remove_all_but(copy, {name} if erasure_source(copy, name) else {name, before})
    return copy


def _claim(copy: Path, url: str) -> None:
    """Make an empty folder a copy of the URL.

    Raises:
        InputError: If it is not empty and not a copy of the URL.
    """
    try:
        copy.mkdir(mode=0o700, parents=True, exist_ok=True)
        if all(entry.name.startswith(".") for entry in copy.iterdir()):
            with staging_folder(copy, STAGING_PREFIX) as staging:
                atomic_write(copy / ORIGIN, f"{url}\n".encode(), folder=staging)
        origin = read_bounded(copy / ORIGIN, _ORIGIN_BYTES).decode(errors="replace").strip()
    except FileNotFoundError as error:
        raise InputError(f"{copy}: is not a copy of releases; name another folder in TAUGATE_RELEASES_COPY") from error
    except OSError as error:
        raise InputError(f"{copy}: cannot keep a copy of {url} ({error}); set TAUGATE_RELEASES_COPY") from error
    if origin != url:
        raise InputError(f"{copy}: is a copy of {origin}, not of {url}; name another folder in TAUGATE_RELEASES_COPY")


@contextmanager
def _copy_lock(copy: Path) -> Iterator[None]:
    """Let one process at a time copy, so that workers download a release once; the lock ends with the process."""
    with (copy / _LOCK).open("wb") as file:
        acquire_if_possible(file.fileno(), copy, math.inf)
        yield


def _is_copied(release: Path, trusted: TrustedKeys | None, *, verifying: bool) -> bool:
    if not verifying:
        return (release / MANIFEST).is_file()
    try:
        verify(release, trusted)
    except (ReleaseError, OSError):
        return False
    return True


def _copied_current(copy: Path) -> str:
    """Return what the copy's own pointer says, empty if it cannot be read."""
    try:
        return read_bounded(copy / CURRENT, POINTER_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def _remove_all_but(copy: Path, names: set[str]) -> None:
    """Remove other releases; a process that has one open can still read it, because its files remain until closed."""
    for entry in copy.iterdir():
        if is_release_id(entry.name) and entry.name not in names:
            shutil.rmtree(entry, ignore_errors=True)
