"""Private copies of releases: opened in a folder that only this user can enter, and removed after use."""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import find, release_ids
from taugate.registry.download import private_copy, private_folder, private_in_place
from taugate.registry.transfer import promote_remote, push, update_copy
from taugate.registry.writer import read_private_key, sign
from taugate.release.verify import TrustedKeys
from taugate.retrieval.reader import load
from tests.keys import write_keys
from tests.release.clones import clone


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


def test_workers_share_one_private_copy(release: Path, folder: Path, trusted: TrustedKeys) -> None:
    one = ExitStack()
    first = one.enter_context(private_copy(release, folder, trusted))
    with private_copy(release, folder, trusted) as second:
        assert (first / "index.faiss").samefile(second / "index.faiss")
        assert not (first / "index.faiss").samefile(release / "index.faiss")
        assert load(first, trusted=trusted).manifest == load(release).manifest
        assert folder.stat().st_mode & 0o777 == 0o700
        one.close()
        assert release_ids(folder) == [release.name]
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_two_releases_have_separate_copies(release: Path, folder: Path, trusted: TrustedKeys, tmp_path: Path) -> None:
    newer = release.parent / clone(release, 1)
    sign(newer, read_private_key(tmp_path / "signer.key"))
    with private_copy(newer, folder, trusted):
        with private_copy(release, folder, trusted):
            assert release_ids(folder) == [release.name, newer.name]
        assert release_ids(folder) == [newer.name]


def test_private_copy_has_no_hard_links(release: Path, folder: Path, trusted: TrustedKeys) -> None:
    """A hard link is a name for the same bytes, which its owner may write."""
    os.link(release / "documents.jsonl", release.parent / "another name")
    with private_copy(release, folder, trusted) as copy:
        assert {path.stat().st_nlink for path in copy.rglob("*") if path.is_file()} == {1}


def test_leftover_copies_are_replaced(release: Path, folder: Path, trusted: TrustedKeys) -> None:
    folder.mkdir(mode=0o700, parents=True)
    left = shutil.copytree(release, folder / release.name)
    (left / "golden.jsonl").write_text("damaged")
    with private_copy(release, folder, trusted) as copy:
        load(copy, trusted=trusted)
    assert release_ids(folder) == []


def test_untrusted_release_is_not_copied(release: Path, folder: Path, tmp_path: Path) -> None:
    stranger = TrustedKeys.load(write_keys(tmp_path, "stranger")[1])
    with (
        pytest.raises(ReleaseError, match=rf"{release}/manifest\.sig: signed by"),
        private_copy(release, folder, stranger),
    ):
        pass
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_full_disk_is_reported_before_copying(release: Path, folder: Path, trusted: TrustedKeys) -> None:
    with patch("taugate.registry.download.shutil.disk_usage") as usage:
        usage.return_value.free = 1000
        with (
            pytest.raises(ReleaseError, match=rf"{folder}.*only 1000 are free.*TAUGATE_CACHE"),
            private_copy(release, folder, trusted),
        ):
            pass


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o710])
def test_accessible_folder_is_refused(release: Path, folder: Path, trusted: TrustedKeys, mode: int) -> None:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    refusal = rf"{folder}: other users may enter it; `chmod 700`.*TAUGATE_CACHE"
    with pytest.raises(InputError, match=refusal), private_copy(release, folder, trusted):
        pass
    assert [*folder.iterdir()] == []


def test_linked_folder_is_refused(release: Path, folder: Path, trusted: TrustedKeys, tmp_path: Path) -> None:
    folder.parent.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="cannot keep a private copy"), private_copy(release, folder, trusted):
        pass


def test_replaced_folder_is_not_entered(folder: Path) -> None:
    with private_folder(folder) as private:
        (private / "ours").touch()
        folder.rename(folder.with_name("moved"))
        folder.mkdir()
        (folder / "theirs").touch()
        assert [path.name for path in private.iterdir()] == ["ours"]


def test_copy_of_url_is_opened_in_place(release: Path, trusted: TrustedKeys, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    push(release, url)
    promote_remote(url, release.name)
    copy = find(update_copy(url, tmp_path / "copy", trusted))
    with private_in_place(copy) as opened:
        load(opened, trusted=trusted)
    assert copy.exists()
    os.link(copy / "index.faiss", tmp_path / "another name")
    refusal = rf"{copy}/index\.faiss: other users can change it"
    with pytest.raises(ReleaseError, match=refusal), private_in_place(copy):
        pass
    copy.parent.chmod(0o755)
    with pytest.raises(InputError, match="other users may enter it"), private_in_place(copy):
        pass
