"""A file is replaced atomically or remains unchanged."""

import os
from pathlib import Path

import pytest

from taugate.storage.files import atomic_write


def test_replaced_file_is_readable_despite_umask(tmp_path: Path) -> None:
    path = tmp_path / "current"
    before = os.umask(0o077)
    try:
        atomic_write(path, b"one")
        atomic_write(path, b"two")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


def test_atomic_write_sets_mode(tmp_path: Path) -> None:
    atomic_write(tmp_path / "keys.json", b"secret", mode=0o600)
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_atomic_write_uses_given_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_failed_write_keeps_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / "current"
    atomic_write(path, b"one")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, name, full)
        with pytest.raises(OSError, match="No space left"):
            atomic_write(path, b"two")
    assert path.read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


def test_leftover_temporary_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".current.new").write_bytes(b"half")
    atomic_write(tmp_path / "current", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


def test_temporary_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"as it was")
    (tmp_path / ".current.new").symlink_to(victim)
    atomic_write(tmp_path / "current", b"whole")
    assert victim.read_bytes() == b"as it was"
    assert not (tmp_path / "current").is_symlink()
