"""Private copies of releases: opened in a folder that only this user can enter, and removed after use."""

import os
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import find, release_ids
from taugate.registry.lock import ReadLock
from taugate.registry.remote.copy import update_copy
from taugate.registry.remote.private import PrivateFolder, PrivateRelease, copy_to_private, open_in_place
from taugate.registry.remote.transfer import promote_remote, push
from taugate.registry.signing import read_private_key, sign
from taugate.retrieval.release.reader import load
from taugate.retrieval.release.signature import TrustedKeys
from tests.keys import write_keys
from tests.retrieval.release.clones import clone


@pytest.fixture
def trusted(tmp_path: Path) -> TrustedKeys:
    return TrustedKeys.load(write_keys(tmp_path)[1])


@pytest.fixture
def release(releases: Path, tmp_path: Path, trusted: TrustedKeys) -> Path:
    """A signed release."""
    release = find(shutil.copytree(releases, tmp_path / "releases"))
    sign(release, read_private_key(tmp_path / "signer.key"))
    return release


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "copies" / "private"


def killed(own: PrivateRelease) -> None:
    """What the kernel does for a process that ends: its locks go, its files stay."""
    lock = own._lock
    assert isinstance(lock, ReadLock)
    lock.close()


def test_workers_share_one_private_copy(release: Path, folder: Path, trusted: TrustedKeys) -> None:
    one, other = copy_to_private(release, folder, trusted), copy_to_private(release, folder, trusted)
    files = [own.release / "index.faiss" for own in (one, other)]
    assert files[0].samefile(files[1])
    assert not files[0].samefile(release / "index.faiss")
    assert load(one.release, trusted=trusted).manifest == load(release).manifest
    assert folder.stat().st_mode & 0o777 == 0o700
    one.close()
    assert release_ids(folder) == [release.name]
    other.close()
    other.close()
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_two_releases_have_separate_copies(release: Path, folder: Path, trusted: TrustedKeys, tmp_path: Path) -> None:
    newer = release.parent / clone(release, 1)
    sign(newer, read_private_key(tmp_path / "signer.key"))
    old, new = copy_to_private(release, folder, trusted), copy_to_private(newer, folder, trusted)
    assert release_ids(folder) == [release.name, newer.name]
    old.close()
    assert release_ids(folder) == [newer.name]
    new.close()


def test_private_copy_has_no_hard_links(release: Path, folder: Path, trusted: TrustedKeys) -> None:
    """A hard link is a name for the same bytes, which its owner may write."""
    os.link(release / "documents.jsonl", release.parent / "another name")
    own = copy_to_private(release, folder, trusted)
    assert {path.stat().st_nlink for path in own.release.rglob("*") if path.is_file()} == {1}
    own.close()


def test_leftover_copies_are_replaced(release: Path, folder: Path, trusted: TrustedKeys) -> None:
    left = copy_to_private(release, folder, trusted)
    (left.release / "golden.jsonl").write_text("damaged")
    killed(left)
    own = copy_to_private(release, folder, trusted)
    load(own.release, trusted=trusted)
    own.close()
    assert release_ids(folder) == []


def test_untrusted_release_is_not_copied(release: Path, folder: Path, tmp_path: Path) -> None:
    stranger = TrustedKeys.load(write_keys(tmp_path, "stranger")[1])
    with pytest.raises(ReleaseError, match=rf"{release}/manifest\.sig: signed by"):
        copy_to_private(release, folder, stranger)
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_full_disk_is_reported_before_copying(release: Path, folder: Path, trusted: TrustedKeys) -> None:
    with patch("taugate.registry.remote.download.shutil.disk_usage") as usage:
        usage.return_value.free = 1000
        with pytest.raises(ReleaseError, match=rf"{folder}.*only 1000 are free.*TAUGATE_RELEASES_COPY"):
            copy_to_private(release, folder, trusted)


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o710])
def test_accessible_folder_is_refused(release: Path, folder: Path, trusted: TrustedKeys, mode: int) -> None:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(InputError, match=rf"{folder}: other users may enter it; `chmod 700`.*TAUGATE_RELEASES_COPY"):
        copy_to_private(release, folder, trusted)
    assert [*folder.iterdir()] == []


def test_linked_folder_is_refused(release: Path, folder: Path, trusted: TrustedKeys, tmp_path: Path) -> None:
    folder.parent.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="cannot keep a private copy"):
        copy_to_private(release, folder, trusted)


def test_replaced_folder_is_not_entered(folder: Path) -> None:
    private = PrivateFolder(folder)
    (private.path / "ours").touch()
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    (folder / "theirs").touch()
    assert [path.name for path in private.path.iterdir()] == ["ours"]
    private.close()


def test_copy_of_url_is_opened_in_place(release: Path, trusted: TrustedKeys, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    push(release, url)
    promote_remote(url, release.name)
    copy = find(update_copy(url, tmp_path / "copy", trusted))
    own = open_in_place(copy)
    load(own.release, trusted=trusted)
    own.close()
    assert copy.exists()
    os.link(copy / "index.faiss", tmp_path / "another name")
    with pytest.raises(ReleaseError, match=rf"{copy}/index\.faiss: other users can change it"):
        open_in_place(copy)
    copy.parent.chmod(0o755)
    with pytest.raises(InputError, match="other users may enter it"):
        open_in_place(copy)
