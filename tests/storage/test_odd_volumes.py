"""Volumes that lack permission bits, fsync of folders or locks, such as SMB, FUSE, vfat or NFS without lockd."""

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.errors import ReleaseError
from taugate.registry.history import calibration_lock, change_lock
from taugate.registry.transfer import _copy_lock
from taugate.storage import folders
from taugate.storage.files import atomic_write, set_mode, sync_folder
from taugate.storage.folders import exclusive_lock


def failing(code: int) -> OSError:
    return OSError(code, os.strerror(code))


@pytest.fixture(autouse=True)
def _no_warning_yet() -> Iterator[None]:
    folders._warn_of_missing_locks.cache_clear()
    yield
    folders._warn_of_missing_locks.cache_clear()


def remove_permission_bits(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Let every change of permission bits fail."""

    def refuse(*_: object, **__: object) -> None:
        raise failing(code)

    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(os, "fchmod", refuse)


def remove_sync_of_folders(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Let fsync of a folder fail."""
    fsync = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise failing(code)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)


def remove_locks(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Let every flock fail."""

    def refuse(descriptor: int, mode: int) -> None:
        raise failing(code)

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EROFS])
def test_atomic_write_without_permission_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    remove_permission_bits(monkeypatch, code)
    atomic_write(tmp_path / "file", b"content", mode=0o600)
    assert (tmp_path / "file").read_bytes() == b"content"
    assert (tmp_path / "file").stat().st_mode & 0o077 == 0  # a secret is never open to others, not even meanwhile


def test_mode_change_failure_is_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        set_mode(tmp_path / "missing", 0o644)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_unsyncable_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    remove_sync_of_folders(monkeypatch, code)
    sync_folder(tmp_path)
    atomic_write(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_full_disk_on_sync_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_sync_of_folders(monkeypatch, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        sync_folder(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_folder_without_locks_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    remove_locks(monkeypatch, code)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with exclusive_lock(tmp_path / ".lock", 0, ReleaseError):
                pass
        with change_lock(tmp_path), calibration_lock(tmp_path), _copy_lock(tmp_path):
            pass
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: the file system has no locks (flock: {os.strerror(code)}); run one command at a time there, "
        "because simultaneous ones can overwrite each other's files"
    ]


def test_lock_failure_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_locks(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output"), exclusive_lock(tmp_path / ".lock", 0, ReleaseError):
        pass


def test_keys_on_limited_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remove_permission_bits(monkeypatch, errno.EPERM)
    remove_sync_of_folders(monkeypatch, errno.EINVAL)
    remove_locks(monkeypatch, errno.ENOLCK)
    keys = tmp_path / "keys.json"
    assert cli.main(["key", "new", "--name", "ann", "--scopes", "search", "--file", str(keys)]) == 0
    assert keys.stat().st_mode & 0o777 == 0o600
    assert "Traceback" not in capsys.readouterr().err
