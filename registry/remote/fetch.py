"""One release from somewhere else into an empty folder: nothing is opened before its size and digest are checked."""

import os
import shutil
from pathlib import Path
from typing import BinaryIO, Protocol

from taugate.errors import ReleaseError
from taugate.registry.catalog import sync_folder
from taugate.retrieval.release.layout import MANIFEST, MANIFEST_BYTES, SIGNATURE
from taugate.retrieval.release.manifest import FileRecord
from taugate.retrieval.release.signature import SIGNATURE_BYTES
from taugate.retrieval.release.trusted_keys import TrustedKeys
from taugate.retrieval.release.verify import read_manifest

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
