"""Releases in object storage: the current one is copied to a local directory, which is what a service loads from."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from taugate.errors import InputError, ReleaseError
from taugate.registry import catalog as outline
from taugate.registry.catalog import sync_folder
from taugate.retrieval.release.layout import (
    CURRENT,
    MANIFEST,
    MANIFEST_BYTES,
    POINTER_BYTES,
    SIGNATURE,
    STAGING_PREFIX,
    is_release_id,
)
from taugate.retrieval.release.manifest import FileRecord
from taugate.retrieval.release.signature import SIGNATURE_BYTES, TrustedKeys
from taugate.retrieval.release.verify import read_manifest, verify
from taugate.storage.files import publish, put_plain, read_plain, staging_folder
from taugate.storage.object_store import Store

_REMEDY = "put the release there again"


class Source(Protocol):
    """Where a release is fetched from: a store, or a directory."""

    url: str

    def read(self, name: str, most: int) -> bytes:
        """A whole file. Raises ReleaseError where it has more than `most` bytes, FileNotFoundError."""
        ...

    def download(self, name: str, target: BinaryIO | None, most: int) -> tuple[int, str]:
        """Read a file, `most` + 1 bytes at most, into another where one is given. Returns its size and SHA-256."""
        ...


def fetch(source: Source, release: Path, trusted: TrustedKeys | None) -> None:
    """Make the folder `release`, whose name is the release's id, and fill it.

    The manifest comes first and is checked, with its signature where one is wanted: names and sizes are the layout's
    and its own from then on. Raises ReleaseError, which names the file there, and OSError when the disk is full.
    """
    name = release.name
    release.mkdir()
    try:
        content = source.read(f"{name}/{MANIFEST}", MANIFEST_BYTES)
        _write(release / MANIFEST, content)
        _signature(source, release)
        manifest = read_manifest(release, content, trusted)
    except FileNotFoundError as error:
        raise ReleaseError(f"{source.url}: holds no release {name}; put it there") from error
    except ReleaseError as error:  # of the file there, not of where it was put to be looked at
        raise type(error)(str(error).replace(str(release), f"{source.url}/{name}")) from error
    _check_room(release, sum(record.bytes for record in manifest.files.values()))
    for file, record in sorted(manifest.files.items()):
        _download(source, f"{name}/{file}", release / file, record)
    for folder in {(release / file).parent for file in manifest.files}:
        sync_folder(folder)
    release.chmod(0o755)


def _signature(source: Source, release: Path) -> None:
    try:
        _write(release / SIGNATURE, source.read(f"{release.name}/{SIGNATURE}", SIGNATURE_BYTES))
    except FileNotFoundError:
        return  # whoever wants one says so


def _check_room(release: Path, needed: int) -> None:
    free = shutil.disk_usage(release).free
    if needed > free:
        raise ReleaseError(
            f"{release.parent.parent}: the release {release.name} takes {needed} bytes, {free} are free; make room, or "
            "name another folder (TAUGATE_RELEASES_COPY, --releases)"
        )


def _download(source: Source, name: str, path: Path, record: FileRecord) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        with path.open("wb") as file:
            size, digest = source.download(name, file, record.bytes)
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError as error:
        raise ReleaseError(f"{source.url}/{name}: missing; {_REMEDY}") from error
    if size != record.bytes:
        raise ReleaseError(f"{source.url}/{name}: not the {record.bytes} bytes that the manifest says; {_REMEDY}")
    if digest != record.sha256:
        raise ReleaseError(f"{source.url}/{name}: SHA-256 differs from the manifest's; {_REMEDY}")


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


ORIGIN = "origin"  # the URL that a copy is of: nothing is removed from a directory that is no copy
_ORIGIN_BYTES = 4096
_LOCK = ".bring.lock"


def bring(url: str, copy: Path, trusted: TrustedKeys | None = None, *, mend: bool = False) -> Path:
    """Bring a copy of the releases at a URL up to date, and return it: a directory whose `current` is the URL's.

    trusted: one of these keys must have signed what is copied, where given; mend: whether to look for damage in a
    release that was copied before, and to copy it again then. The release that was current before stays, unless
    documents were erased from the new one; older ones go. Raises StoreError when the store does not answer,
    ReleaseError when what it holds does not verify, InputError when the URL or the copy cannot be used, OSError when
    the disk is full; the copy is as it was then.
    """
    store = Store(url)
    _claim(copy, store.url)
    name = current_of(store)
    if name is None:
        raise ReleaseError(f"{store.url}: no release is current; `taugate release push --promote` makes one so")
    with _alone(copy):
        if not _is_there(copy / name, trusted, mend=mend):
            add(store, copy, name, trusted)
        before = _kept(copy)
        if name != before:
            with staging_folder(copy, STAGING_PREFIX) as staging:
                put_plain(copy / CURRENT, f"{name}\n".encode(), staging)
            _keep_only(copy, {name} if outline.erased_from(copy, name) else {name, before})
    return copy


def current_of(store: Store) -> str | None:
    """The id of a store's current release, None before the first. Raises ReleaseError when it says anything else."""
    try:
        name = store.read(CURRENT, POINTER_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        name = ""
    if not is_release_id(name):
        raise ReleaseError(
            f"{store.url}/{CURRENT}: is not one line with a release id; look who put it there, remove it, and push and "
            "promote a release again"
        )
    return name


def add(source: Source, releases: Path, name: str, trusted: TrustedKeys | None) -> None:
    """Fetch a release into a directory, in place of a damaged one of that name. Raises as `fetch`."""
    with staging_folder(releases, STAGING_PREFIX) as staging:
        release = staging / name
        fetch(source, release, trusted)
        if (releases / name).exists():  # damaged
            (releases / name).rename(staging / "damaged")
        publish(release, releases / name)
        sync_folder(releases)


def _claim(copy: Path, url: str) -> None:
    """Make an empty folder a copy of the URL. Raises InputError where it is anything else."""
    try:
        copy.mkdir(mode=0o700, parents=True, exist_ok=True)
        if all(entry.name.startswith(".") for entry in copy.iterdir()):
            with staging_folder(copy, STAGING_PREFIX) as staging:
                put_plain(copy / ORIGIN, f"{url}\n".encode(), staging)
        origin = read_plain(copy / ORIGIN, _ORIGIN_BYTES).decode(errors="replace").strip()
    except FileNotFoundError as error:
        raise InputError(f"{copy}: is no copy of releases; name another folder in TAUGATE_RELEASES_COPY") from error
    except OSError as error:
        raise InputError(f"{copy}: no copy of {url} can be kept there ({error}); set TAUGATE_RELEASES_COPY") from error
    if origin != url:
        raise InputError(f"{copy}: is a copy of {origin}, not of {url}; name another folder in TAUGATE_RELEASES_COPY")


@contextmanager
def _alone(copy: Path) -> Iterator[None]:
    """One process at a time, so that workers fetch a release once; the kernel lets go of it for who was killed."""
    with (copy / _LOCK).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_there(release: Path, trusted: TrustedKeys | None, *, mend: bool) -> bool:
    if not mend:
        return (release / MANIFEST).is_file()
    try:
        verify(release, trusted)
    except (ReleaseError, OSError):
        return False
    return True


def _kept(copy: Path) -> str:
    try:
        return read_plain(copy / CURRENT, POINTER_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def _keep_only(copy: Path, names: set[str]) -> None:
    """Whoever has an older one open goes on reading it: its files are gone when the last of them is closed."""
    for entry in copy.iterdir():
        if is_release_id(entry.name) and entry.name not in names:
            shutil.rmtree(entry, ignore_errors=True)
