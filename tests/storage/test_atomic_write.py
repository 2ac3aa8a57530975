"""A file is replaced in one step, or stays as it was."""

import os
from pathlib import Path

import pytest

from taugate.storage.files import atomic_write


def test_it_is_replaced_and_readable_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "current"
    before = os.umask(0o077)
    try:
        atomic_write(path, b"one")
        atomic_write(path, b"two")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["current"]


def test_its_permissions_can_be_chosen(tmp_path: Path) -> None:
    atomic_write(tmp_path / "keys.json", b"secret", mode=0o600)
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_nothing_half_written_is_beside_it_where_a_folder_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, staging = tmp_path / "release" / "manifest.sig", tmp_path / "staging"
    path.parent.mkdir()
    staging.mkdir()
    sync, seen = os.fsync, []

    def look(descriptor: int) -> None:
        seen.append((len([*path.parent.iterdir()]), len([*staging.iterdir()])))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    atomic_write(path, b"signature", folder=staging)
    assert seen == [(0, 1), (1, 0)], "its content before its name, its name before anyone relies on it"


@pytest.mark.parametrize("name", ["fsync", "chmod"])
def test_a_failure_leaves_it_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / "current"
    atomic_write(path, b"one")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, name, full)
        with pytest.raises(OSError, match="No space left"):
            atomic_write(path, b"two")
    assert path.read_bytes() == b"one"
    assert [each.name for each in tmp_path.iterdir()] == ["current"]


def test_what_a_killed_writer_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".current.new").write_bytes(b"half")
    atomic_write(tmp_path / "current", b"whole")
    assert [each.name for each in tmp_path.iterdir()] == ["current"]


def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"as it was")
    (tmp_path / ".current.new").symlink_to(victim)
    atomic_write(tmp_path / "current", b"whole")
    assert victim.read_bytes() == b"as it was"
    assert not (tmp_path / "current").is_symlink()
