"""The cache folder, also for users without a home directory and with unwritable folders."""

import errno
import logging
import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.errors import InputError
from taugate.storage import folders
from taugate.storage.folders import cache_folder, make_folder, set_missing_home


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, and an environment that says nothing about caches."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    for name in ("TAUGATE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    folders._temporary_cache.cache_clear()
    yield folder
    folders._temporary_cache.cache_clear()


def private(temporary: Path) -> Path:
    """Return the folder of this user among the temporary files."""
    return temporary / f"taugate-{os.geteuid()}"


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without HOME and without an entry in the user database."""

    def missing(user: int) -> None:
        raise KeyError(user)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", missing)


def deny_writing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let `os.access` say that a folder cannot be written to, which root is never told otherwise."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and access(path, mode))


def test_cache_follows_environment_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "taugate"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "taugate"
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_relative_xdg_cache_home_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cache_folder() == tmp_path / ".cache" / "taugate"


@pytest.mark.usefixtures("nameless")
def test_missing_home_uses_private_cache(temporary: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert cache_folder() == cache_folder() == private(temporary) / "cache"
    assert [record.getMessage() for record in caplog.records] == [
        f"this user has no home directory; using the temporary cache {private(temporary)}/cache; set TAUGATE_CACHE to "
        "keep the cache"
    ]
    assert private(temporary).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("home", ["exists", "missing"])
def test_unwritable_home_uses_private_cache(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (tmp_path / "exists").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / home))
    deny_writing(monkeypatch, tmp_path / "exists" if home == "exists" else tmp_path)
    assert cache_folder() == private(temporary) / "cache"
    assert not (tmp_path / "missing").exists()


@pytest.mark.usefixtures("nameless")
@pytest.mark.parametrize("trap", ["link", "file", "open"])
def test_unsafe_private_folder_is_refused(tmp_path: Path, temporary: Path, trap: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    if trap == "link":
        private(temporary).symlink_to(tmp_path / "elsewhere")
    elif trap == "file":
        private(temporary).touch()
    else:
        private(temporary).mkdir()
        private(temporary).chmod(0o777)
    with pytest.raises(InputError, match="others can write to it; set TAUGATE_CACHE to a private folder"):
        cache_folder()


@pytest.mark.usefixtures("nameless")
def test_missing_home_is_set_for_libraries(temporary: Path) -> None:
    set_missing_home()
    assert os.environ["HOME"] == str(private(temporary))
    assert cache_folder() == private(temporary) / "cache"


def test_existing_home_is_unchanged(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    set_missing_home()
    assert os.environ["HOME"] == str(tmp_path / "nowhere")
    assert not list(temporary.iterdir())


def test_uncreatable_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"data: cannot be created \(Not a directory\); name a writable folder"):
        make_folder(tmp_path / "file" / "data")


def test_missing_temporary_folder_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", missing)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", lambda user: {}[user])
    (tmp_path / "a.txt").write_text("The pump starts.")
    assert cli.main(["import", str(tmp_path / "a.txt"), "--to", str(tmp_path / "data")]) == 1
    assert capsys.readouterr().err == (
        "taugate: No usable temporary directory found in ['/tmp']: all are full or not writable; set TMPDIR to a "
        "folder with free space\n"
    )
