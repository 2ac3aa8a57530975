"""Releases in object storage: push, pull, and the local copy that a service loads from."""

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import current_id, erasure_source, find, match_id
from taugate.registry.download import install_release, remote_current_id
from taugate.registry.promotion import promote
from taugate.release import layout
from taugate.release.manifest import FileRecord
from taugate.release.verify import SIGNATURE_BYTES, TrustedKeys, verified, verify
from taugate.storage.files import atomic_write, read_bounded
from taugate.storage.folders import acquire_if_possible, staging_folder
from taugate.storage.object_store import Store

ORIGIN = "origin"  # names the URL of a copy; from a directory without it nothing is ever removed
_ORIGIN_BYTES = 4096
_LOCK = ".bring.lock"


def push(release: Path, url: str, trusted: TrustedKeys | None = None) -> None:
    """Upload a release to a URL unless it is already there; files of an interrupted push are reused."""
    # The manifest is uploaded last: without it, a release does not count as present.
    store, name = Store(url), release.name
    manifest, content = verified(release, trusted)
    uploaded = _read(store, f"{name}/{layout.MANIFEST}")
    if uploaded is not None and uploaded != content:
        raise ReleaseError(
            f"{store.url}/{name}: holds another {layout.MANIFEST}; find out who put it there, and remove it"
        )
    for file, record in sorted(manifest.files.items()):
        if not _is_uploaded(store, f"{name}/{file}", record):
            store.upload(release / file, f"{name}/{file}")
    if (release / layout.SIGNATURE).exists():
        store.write(f"{name}/{layout.SIGNATURE}", read_bounded(release / layout.SIGNATURE, SIGNATURE_BYTES))
    if uploaded is None:
        store.write(f"{name}/{layout.MANIFEST}", content)


def check_remote_current(url: str, releases: Path) -> None:
    """Check that a directory has the release that is current at a URL, before another one replaces it there."""
    # If it does not, as with a new directory or after a loss, no rule has compared the two.
    store = Store(url)
    current = remote_current_id(store)
    if current is not None and not (releases / current / layout.MANIFEST).is_file():
        raise ReleaseError(
            f"{store.url}: its current release {current} is not in {releases}, so nothing was compared with it; "
            "run `taugate release pull` before calibrating; to replace it anyway, run "
            f"`taugate release pull {current}`, then push again"
        )


def promote_remote(url: str, name: str) -> None:
    """Make a pushed release the current one at a URL; errors as in `push`. There is no lock: the last writer wins."""
    Store(url).write(layout.CURRENT, f"{name}\n".encode())


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.read(name, layout.MANIFEST_BYTES)
    except FileNotFoundError:
        return None


def _is_uploaded(store: Store, name: str, record: FileRecord) -> bool:
    """Return whether an object is this file, by reading it: faster than writing, and safer than comparing sizes."""
    if store.size(name) != record.bytes:
        return False
    return store.download(name, None, record.bytes) == (record.bytes, record.sha256)


def pull(url: str, releases: Path, name: str | None = None, trusted: TrustedKeys | None = None) -> str | None:
    """Download a release from a URL into a directory; returns its id, None if the URL has no current one yet."""
    # The current release of the URL becomes current in the directory, too. A release that is named is only added, for
    # `promote` or `rollback`.
    store = Store(url)
    requested = remote_current_id(store) if name is None else _remote_id(store, name)
    if requested is None:
        return None
    current = current_id(releases) if name is None and releases.is_dir() else None
    if current not in {None, requested}:
        raise ReleaseError(
            f"{releases}: its current release is {current}, that of {store.url} is {requested}; run push --promote for "
            "the former, or pull and promote the latter by its id"
        )
    if not (releases / requested / layout.MANIFEST).is_file():
        releases.mkdir(parents=True, exist_ok=True)
        install_release(store, releases, requested, trusted)
    if name is None and current is None:
        promote(releases, requested, trusted, force=True)  # it is served already
    else:
        verify(find(releases, requested), trusted)
    return requested


def _remote_id(store: Store, text: str) -> str:
    """Return the full id of a release, from the beginning of one; lists the store only for an abbreviated id."""
    # Raises as `match_id` and `Store.folder_names`.
    if layout.is_release_id(text):
        return text
    return match_id(sorted(name for name in store.folder_names() if layout.is_release_id(name)), text, store.url)


def update_copy(url: str, copy: Path, trusted: TrustedKeys | None = None, *, repair: bool = False) -> Path:
    """Update a copy of the releases at a URL; returns it, a directory with the same `current` as the URL."""
    # The previous release is kept, unless documents were erased from the new one; older ones are deleted.
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
            with staging_folder(copy, layout.STAGING_PREFIX) as staging:
                atomic_write(copy / layout.CURRENT, f"{name}\n".encode(), folder=staging)
            _remove_all_but(copy, {name} if erasure_source(copy, name) else {name, before})
    return copy


def _claim(copy: Path, url: str) -> None:
    """Make an empty folder a copy of the URL. Raises InputError if it is not empty and not a copy of the URL."""
    try:
        copy.mkdir(mode=0o700, parents=True, exist_ok=True)
        if all(entry.name.startswith(".") for entry in copy.iterdir()):
            with staging_folder(copy, layout.STAGING_PREFIX) as staging:
                atomic_write(copy / ORIGIN, f"{url}\n".encode(), folder=staging)
        origin = read_bounded(copy / ORIGIN, _ORIGIN_BYTES).decode(errors="replace").strip()
    except FileNotFoundError as error:
        raise InputError(f"{copy}: is not a copy of releases; name another folder in TAUGATE_CACHE") from error
    except OSError as error:
        raise InputError(f"{copy}: cannot keep a copy of {url} ({error}); set TAUGATE_CACHE") from error
    if origin != url:
        raise InputError(f"{copy}: is a copy of {origin}, not of {url}; name another folder in TAUGATE_CACHE")


@contextmanager
def _copy_lock(copy: Path) -> Iterator[None]:
    """Let one process at a time copy, so that workers download a release once; the lock ends with the process."""
    with (copy / _LOCK).open("wb") as file:
        acquire_if_possible(file.fileno(), copy, math.inf)
        yield


def _is_copied(release: Path, trusted: TrustedKeys | None, *, verifying: bool) -> bool:
    if not verifying:
        return (release / layout.MANIFEST).is_file()
    try:
        verify(release, trusted)
    except (ReleaseError, OSError):
        return False
    return True


def _copied_current(copy: Path) -> str:
    """Return what the copy's own pointer says, empty if it cannot be read."""
    try:
        return read_bounded(copy / layout.CURRENT, layout.POINTER_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def _remove_all_but(copy: Path, names: set[str]) -> None:
    """Remove other releases; a process that has one open can still read it, because its files remain until closed."""
    for entry in copy.iterdir():
        if layout.is_release_id(entry.name) and entry.name not in names:
            shutil.rmtree(entry, ignore_errors=True)
