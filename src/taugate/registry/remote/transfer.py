"""Push and pull: releases from a directory to object storage, and back into a directory."""

from pathlib import Path

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, find, match_id
from taugate.registry.promotion import promote
from taugate.registry.remote.download import install_release, remote_current_id
from taugate.retrieval.release.layout import CURRENT, MANIFEST, MANIFEST_BYTES, SIGNATURE, is_release_id
from taugate.retrieval.release.manifest import FileRecord
from taugate.retrieval.release.signature import SIGNATURE_BYTES, TrustedKeys
from taugate.retrieval.release.verify import verified, verify
from taugate.storage.files import read_bounded
from taugate.storage.object_store import Store


def push(release: Path, url: str, trusted: TrustedKeys | None = None) -> None:
    """Upload a release to a URL, where it is not there already; what an interrupted push left there is used.

    The manifest is uploaded last: without it, it is no release.

    Args:
        release: The release's folder.
        url: Where releases are kept, such as s3://bucket/prefix.
        trusted: Keys of which one must have signed the release; None asks for no signature.

    Raises:
        ReleaseError: Where the release does not verify, or the store refuses or holds another release of the same id;
            StoreError where it does not answer, InputError where the URL cannot be used.
    """
    store, name = Store(url), release.name
    manifest, content = verified(release, trusted)
    there = _read(store, f"{name}/{MANIFEST}")
    if there is not None and there != content:
        raise ReleaseError(f"{store.url}/{name}: holds another {MANIFEST}; find out who put it there, and remove it")
    for file, record in sorted(manifest.files.items()):
        if not _is_uploaded(store, f"{name}/{file}", record):
            store.upload(release / file, f"{name}/{file}")
    if (release / SIGNATURE).exists():
        store.write(f"{name}/{SIGNATURE}", read_bounded(release / SIGNATURE, SIGNATURE_BYTES))
    if there is None:
        store.write(f"{name}/{MANIFEST}", content)


def check_remote_current(url: str, releases: Path) -> None:
    """Check that a directory has the release that is current at a URL, before it says what becomes current there.

    Without it, as where the directory is new or was lost, no rule has compared the two.

    Args:
        url: As in `push`.
        releases: The releases directory.

    Raises:
        ReleaseError: Where it has not, and as `push`.
    """
    store = Store(url)
    there = remote_current_id(store)
    if there is not None and not (releases / there / MANIFEST).is_file():
        raise ReleaseError(
            f"{store.url}: its current release {there} is not in {releases}, so nothing was compared with it; "
            "run `taugate release pull` before calibrating; to replace it all the same, run "
            f"`taugate release pull {there}`, then push again"
        )


def promote_remote(url: str, name: str) -> None:
    """Make a release that was pushed the current one at a URL. There is no lock: the last writer wins.

    Args:
        url: As in `push`.
        name: The release's id.

    Raises:
        ReleaseError: As `push`.
        StoreError: As `push`.
        InputError: As `push`.
    """
    Store(url).write(CURRENT, f"{name}\n".encode())


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.read(name, MANIFEST_BYTES)
    except FileNotFoundError:
        return None


def _is_uploaded(store: Store, name: str, record: FileRecord) -> bool:
    """Tell whether an object is this file, by reading it: that is faster than writing, and proves more than a size."""
    if store.size(name) != record.bytes:
        return False
    return store.download(name, None, record.bytes) == (record.bytes, record.sha256)


def pull(url: str, releases: Path, name: str | None = None, trusted: TrustedKeys | None = None) -> str | None:
    """Download a release from a URL into a directory; returns its id, None where the URL has no current one yet.

    The current release of the URL is made current in the directory, too. A release that is named is put there and
    nothing else, for `promote` or `rollback`.

    Args:
        url: As in `push`.
        releases: The releases directory, made where needed.
        name: The release's id, or the beginning of one; by default that of the URL's current one.
        trusted: As in `push`.

    Raises:
        ReleaseError: Where the store holds no such release, where it does not verify, or where another release is
            current in the directory, as nobody's promotion is taken back; StoreError where the store does not answer,
            InputError where the URL cannot be used, OSError when the disk is full.
    """
    store = Store(url)
    wanted = remote_current_id(store) if name is None else _remote_id(store, name)
    if wanted is None:
        return None
    here = current_id(releases) if name is None and releases.is_dir() else None
    if here not in {None, wanted}:
        raise ReleaseError(
            f"{releases}: has the current release {here}, {store.url} has {wanted}; push --promote the one, or give "
            "the other's ID to pull and promote it"
        )
    if not (releases / wanted / MANIFEST).is_file():
        releases.mkdir(parents=True, exist_ok=True)
        install_release(store, releases, wanted, trusted)
    if name is None and here is None:
        promote(releases, wanted, trusted, force=True)  # it is served already
    else:
        verify(find(releases, wanted), trusted)
    return wanted


def _remote_id(store: Store, text: str) -> str:
    """Return the full id of a release; lists the store only for an abbreviated one.

    Args:
        store: Where the releases are.
        text: An id, or the beginning of one. Raises as `match_id` and `Store.folder_names`.
    """
    if is_release_id(text):
        return text
    return match_id(sorted(name for name in store.folder_names() if is_release_id(name)), text, store.url)
