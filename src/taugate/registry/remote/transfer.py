"""Push and pull: uploads releases from a directory to object storage, and downloads them into a directory."""

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
    """Upload a release to a URL unless it is already there; files of an interrupted push are reused.

    The manifest is uploaded last: without it, a release does not count as present.

    Args:
        release: Folder of the release.
        url: Where releases are kept, such as s3://bucket/prefix.
        trusted: Keys of which one must have signed the release; None requires no signature.

    Raises:
        ReleaseError: If the release does not verify, or the store refuses it or holds another release of the same id.
        StoreError: If the store is not responding.
        InputError: If the URL cannot be used.
    """
    store, name = Store(url), release.name
    manifest, content = verified(release, trusted)
    uploaded = _read(store, f"{name}/{MANIFEST}")
    if uploaded is not None and uploaded != content:
        raise ReleaseError(f"{store.url}/{name}: holds another {MANIFEST}; find out who put it there, and remove it")
    for file, record in sorted(manifest.files.items()):
        if not _is_uploaded(store, f"{name}/{file}", record):
            store.upload(release / file, f"{name}/{file}")
    if (release / SIGNATURE).exists():
        store.write(f"{name}/{SIGNATURE}", read_bounded(release / SIGNATURE, SIGNATURE_BYTES))
    if uploaded is None:
        store.write(f"{name}/{MANIFEST}", content)


def check_remote_current(url: str, releases: Path) -> None:
    """Check that a directory has the release that is current at a URL, before another one replaces it there.

    If it does not, as with a new directory or after a loss, no rule has compared the two.

    Args:
        url: See `push`.
        releases: The releases directory.

    Raises:
        ReleaseError: If the directory does not have it; other errors as in `push`.
    """
    store = Store(url)
    current = remote_current_id(store)
    if current is not None and not (releases / current / MANIFEST).is_file():
        raise ReleaseError(
            f"{store.url}: its current release {current} is not in {releases}, so nothing was compared with it; "
            "run `taugate release pull` before calibrating; to replace it anyway, run "
            f"`taugate release pull {current}`, then push again"
        )


def promote_remote(url: str, name: str) -> None:
    """Make a pushed release the current one at a URL; errors as in `push`. There is no lock: the last writer wins."""
    Store(url).write(CURRENT, f"{name}\n".encode())


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.read(name, MANIFEST_BYTES)
    except FileNotFoundError:
        return None


def _is_uploaded(store: Store, name: str, record: FileRecord) -> bool:
    """Return whether an object is this file, by reading it: faster than writing, and safer than comparing sizes."""
    if store.size(name) != record.bytes:
        return False
    return store.download(name, None, record.bytes) == (record.bytes, record.sha256)


def pull(url: str, releases: Path, name: str | None = None, trusted: TrustedKeys | None = None) -> str | None:
    """Download a release from a URL into a directory; returns its id, None if the URL has no current one yet.

    The current release of the URL becomes current in the directory, too. A release that is named is only added, for
    `promote` or `rollback`.

    Args:
        url: See `push`.
        releases: The releases directory, created if needed.
        name: Id of the release, or the beginning of one; by default the URL's current one.
        trusted: See `push`.

    Raises:
        ReleaseError: If the store does not hold the release, if it does not verify, or if another release is current in
            the directory, because `pull` never undoes a promotion.
        StoreError: If the store is not responding.
        InputError: If the URL cannot be used.
        OSError: If the disk is full.
    """
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
    if not (releases / requested / MANIFEST).is_file():
        releases.mkdir(parents=True, exist_ok=True)
        install_release(store, releases, requested, trusted)
    if name is None and current is None:
        promote(releases, requested, trusted, force=True)  # it is served already
    else:
        verify(find(releases, requested), trusted)
    return requested


def _remote_id(store: Store, text: str) -> str:
    """Return the full id of a release, from the beginning of one; lists the store only for an abbreviated id.

    Raises as `match_id` and `Store.folder_names`.
    """
    if is_release_id(text):
        return text
    return match_id(sorted(name for name in store.folder_names() if is_release_id(name)), text, store.url)
