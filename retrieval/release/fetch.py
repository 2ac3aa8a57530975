"""One release from object storage into an empty folder: nothing is opened before its size and digest are checked."""

import os
import shutil
from pathlib import Path

from retrieval.errors import ReleaseError
from retrieval.object_store import Store
from retrieval.release.catalog import sync_folder
from retrieval.release.layout import MANIFEST, MANIFEST_BYTES, SIGNATURE
from retrieval.release.manifest import FileRecord
from retrieval.release.signature import SIGNATURE_BYTES
from retrieval.release.trusted_keys import TrustedKeys
from retrieval.release.verify import read_manifest

_REMEDY = "push the release again"


def fetch(store: Store, release: Path, trusted: TrustedKeys | None) -> None:
    """Make the folder `release`, whose name is the release's id, and fill it.

    The manifest comes first and is checked, with its signature where one is wanted: names and sizes are the layout's
    and its own from then on. Raises ReleaseError, which names the object, and OSError when the disk is full.
    """
    name = release.name
    release.mkdir()
    try:
        content = store.read(f"{name}/{MANIFEST}", MANIFEST_BYTES)
        _write(release / MANIFEST, content)
        _signature(store, release)
        manifest = read_manifest(release, content, trusted)
    except FileNotFoundError as error:
        raise ReleaseError(f"{store.url}: holds no release {name}; push it") from error
    except ReleaseError as error:  # of the object, not of where it was put to be looked at
        raise type(error)(str(error).replace(str(release), f"{store.url}/{name}")) from error
    _check_room(release, sum(record.bytes for record in manifest.files.values()))
    for file, record in sorted(manifest.files.items()):
        _download(store, f"{name}/{file}", release / file, record)
    for folder in {(release / file).parent for file in manifest.files}:
        sync_folder(folder)
    release.chmod(0o755)


def _signature(store: Store, release: Path) -> None:
    try:
        _write(release / SIGNATURE, store.read(f"{release.name}/{SIGNATURE}", SIGNATURE_BYTES))
    except FileNotFoundError:
        return  # whoever wants one says so


def _check_room(release: Path, needed: int) -> None:
    free = shutil.disk_usage(release).free
    if needed > free:
        raise ReleaseError(
            f"{release.parent.parent}: the release {release.name} takes {needed} bytes, {free} are free; make room, or "
            "name another folder (TAUGATE_RELEASES_COPY, --releases)"
        )


def _download(store: Store, name: str, path: Path, record: FileRecord) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        with path.open("wb") as file:
            size, digest = store.download(name, file, record.bytes)
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError as error:
        raise ReleaseError(f"{store.url}/{name}: missing; {_REMEDY}") from error
    if size != record.bytes:
        raise ReleaseError(f"{store.url}/{name}: not the {record.bytes} bytes that the manifest says; {_REMEDY}")
    if digest != record.sha256:
        raise ReleaseError(f"{store.url}/{name}: SHA-256 differs from the manifest's; {_REMEDY}")


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
