"""Downloads a release from object storage or another directory, and checks each file against its manifest."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from taugate.errors import ReleaseError
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
from taugate.retrieval.release.verify import read_manifest
from taugate.storage.files import open_regular, set_mode, sync, sync_folder, write_synced, writing
from taugate.storage.folders import publish_folder, staging_folder
from taugate.storage.object_store import Store, copy_bounded

_REMEDY = "put the release there again"


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
    """Return the id of a store's current release, None before the first.

    Raises:
        ReleaseError: If `current` is anything else; other errors of the store are raised as well.
    """
    try:
        name = store.read(CURRENT, POINTER_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        name = ""
    if not is_release_id(name):
        raise ReleaseError(
            f"{store.url}/{CURRENT}: does not hold one line with a release id; find out who wrote it, remove it, and "
            "push and promote a release again"
        )
    return name


def install_release(source: Source, releases: Path, name: str, trusted: TrustedKeys | None) -> None:
    """Download a release into a releases directory, replacing a damaged one of the same id.

    Raises as `download_release`.

    Args:
        source: Source of the release.
        releases: The releases directory.
        name: Id of the release.
        trusted: Keys of which one must have signed it; None requires no signature.
    """
    with staging_folder(releases, STAGING_PREFIX) as staging:
        release = staging / name
        download_release(source, release, trusted)
        if (releases / name).exists():  # damaged
            (releases / name).rename(staging / "damaged")
        publish_folder(release, releases / name)
        sync_folder(releases)


def download_release(source: Source, release: Path, trusted: TrustedKeys | None) -> None:
    """Create the folder of a release and fill it.

    The manifest is downloaded first and checked, with its signature if keys are given. After that, all names are known
    to be those of the layout, and each file is checked against its size and digest.

    Args:
        source: Source of the release.
        release: The folder to create, named by the release's id.
        trusted: See `install_release`.

    Raises:
        ReleaseError: If a file is missing or wrong; names the file at the source.
        OSError: If the disk is full.
    """
    name = release.name
    release.mkdir()
    try:
        content = source.read(f"{name}/{MANIFEST}", MANIFEST_BYTES)
        write_synced(release / MANIFEST, content)
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
        write_synced(release / SIGNATURE, source.read(f"{release.name}/{SIGNATURE}", SIGNATURE_BYTES))
    except FileNotFoundError:
        return  # if a signature is required, the verification reports it


def _check_space(release: Path, needed: int) -> None:
    free = shutil.disk_usage(release).free
    if needed > free:
        raise ReleaseError(
            f"{release.parent.parent}: the release {release.name} takes {needed} bytes, but only {free} are free; "
            "free some space, or name another folder (TAUGATE_RELEASES_COPY, --releases)"
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
