"""A release from a releases directory to object storage: its files first, its manifest last, `current` after that."""

from pathlib import Path

from taugate.errors import ReleaseError
from taugate.registry.remote.remote import current_of
from taugate.retrieval.release.layout import CURRENT, MANIFEST, MANIFEST_BYTES, SIGNATURE
from taugate.retrieval.release.manifest import FileRecord
from taugate.retrieval.release.signature import SIGNATURE_BYTES
from taugate.retrieval.release.trusted_keys import TrustedKeys
from taugate.retrieval.release.verify import verified
from taugate.storage.object_store import Store
from taugate.storage.plain_file import read_plain


def push(release: Path, url: str, trusted: TrustedKeys | None = None) -> None:
    """Put a release below a URL, where it is not there already; what an interrupted push left there is used.

    Without its manifest, which comes last, it is no release. Raises ReleaseError when the release does not verify,
    or the store refuses or holds another release of the same id; StoreError when it does not answer, InputError when
    the URL cannot be used.
    """
    store, name = Store(url), release.name
    manifest, content = verified(release, trusted)
    there = _read(store, f"{name}/{MANIFEST}")
    if there is not None and there != content:
        raise ReleaseError(f"{store.url}/{name}: holds another {MANIFEST}; look who put it there, and remove it")
    for file, record in sorted(manifest.files.items()):
        if not _is_there(store, f"{name}/{file}", record):
            store.upload(release / file, f"{name}/{file}")
    if (release / SIGNATURE).exists():
        store.write(f"{name}/{SIGNATURE}", read_plain(release / SIGNATURE, SIGNATURE_BYTES))
    if there is None:
        store.write(f"{name}/{MANIFEST}", content)


def check_known(url: str, releases: Path) -> None:
    """Whether a releases directory may say what becomes current at a URL: it has what is current there, if anything is.

    Without it no rule was asked about the two, as where the directory is new or was lost. Raises ReleaseError, and as
    `push`.
    """
    store = Store(url)
    there = current_of(store)
    if there is not None and not (releases / there / MANIFEST).is_file():
        raise ReleaseError(
            f"{store.url}: its current release {there} is not in {releases}, and nothing was compared with it; "
            "`taugate release pull` comes before calibrating; where it is to be replaced all the same, "
            f"`taugate release pull {there}`, then push again"
        )


def promote_there(url: str, name: str) -> None:
    """Make a release that was pushed the current one of a URL. There is no lock: the last writer wins."""
    Store(url).write(CURRENT, f"{name}\n".encode())


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.read(name, MANIFEST_BYTES)
    except FileNotFoundError:
        return None


def _is_there(store: Store, name: str, record: FileRecord) -> bool:
    """Whether the object is this file, which is read: that is faster than writing it, and proves more than its size."""
    if store.size(name) != record.bytes:
        return False
    return store.download(name, None, record.bytes) == (record.bytes, record.sha256)
