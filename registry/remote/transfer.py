"""A release from object storage into a releases directory: where calibrations have no directory that stays."""

from pathlib import Path

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, find
from taugate.registry.promotion import promote
from taugate.registry.remote.copy import add, current_of
from taugate.retrieval.release.layout import CURRENT, MANIFEST, MANIFEST_BYTES, SIGNATURE, is_release_id
from taugate.retrieval.release.manifest import FileRecord
from taugate.retrieval.release.signature import SIGNATURE_BYTES, TrustedKeys
from taugate.retrieval.release.verify import verified, verify
from taugate.storage.files import read_plain
from taugate.storage.object_store import Store


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


def pull(url: str, releases: Path, name: str | None = None, trusted: TrustedKeys | None = None) -> str | None:
    """Put a release of a URL into a directory, by default the current one, which is made current here, too.

    A release that is named is put there and nothing else, for `promote` or `rollback`. Returns its id, None where the
    URL has no current one yet. Raises ReleaseError when the store holds no such release, when it does not
    verify, or when another release is current here: nobody's promotion is taken back; StoreError when the store does
    not answer, InputError when the URL cannot be used, OSError when the disk is full.
    """
    store = Store(url)
    wanted = current_of(store) if name is None else name
    if wanted is None:
        return None
    if not is_release_id(wanted):
        raise ReleaseError(f"{store.url}: holds no release {wanted!r}; give an id such as `taugate release list` shows")
    here = current_id(releases) if name is None and releases.is_dir() else None
    if here not in {None, wanted}:
        raise ReleaseError(
            f"{releases}: has the current release {here}, {store.url} has {wanted}; push --promote the one, or give "
            "the other's ID to pull and promote it"
        )
    if not (releases / wanted / MANIFEST).is_file():
        releases.mkdir(parents=True, exist_ok=True)
        add(store, releases, wanted, trusted)
    if name is None and here is None:
        promote(releases, wanted, trusted, force=True)  # it is served already
    else:
        verify(find(releases, wanted), trusted)
    return wanted
