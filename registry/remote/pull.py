"""A release from object storage into a releases directory: where calibrations have no directory that stays."""

from pathlib import Path

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, find
from taugate.registry.promotion import promote
from taugate.registry.remote.remote import add, current_of
from taugate.retrieval.release.layout import MANIFEST, is_release_id
from taugate.retrieval.release.trusted_keys import TrustedKeys
from taugate.retrieval.release.verify import verify
from taugate.storage.object_store import Store


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
