"""Pipes, devices and links in place of files are never read, because reading might never end or never begin."""

import os
import shutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from taugate.errors import ReleaseError, StoreError, TaugateError
from taugate.registry import history
from taugate.registry.catalog import current_id, find
from taugate.registry.transfer import promote_remote, push, update_copy
from taugate.release.layout import CURRENT, HISTORY, MANIFEST
from taugate.release.verify import verify
from taugate.storage.object_store import Store


def pipe(path: Path) -> None:
    """With a writer behind it: who opens it as a file reads on, and does not hold up the tests."""
    os.mkfifo(path)

    def write() -> None:
        with suppress(OSError), path.open("wb") as file:
            file.write(b"x")

    threading.Thread(target=write, daemon=True).start()


def bound_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may have 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def sparse(path: Path) -> None:
    """A terabyte on no disk."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def link_out(path: Path) -> None:
    outside = path.parents[2] / "outside"
    outside.write_text("x")
    path.symlink_to(outside)


STRANGE: dict[str, Callable[[Path], None]] = {
    "pipe": pipe,
    "socket": bound_socket,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link out": link_out,
    "link to itself": lambda path: path.symlink_to(path.name),
    "a terabyte": sparse,
}


@pytest.fixture(params=STRANGE)
def strange(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return STRANGE[request.param]


@pytest.fixture
def copy(releases: Path, tmp_path: Path) -> Path:
    return shutil.copytree(releases, tmp_path / "deep" / "releases")


@pytest.mark.parametrize("name", [CURRENT, MANIFEST, "golden.jsonl"])
def test_folder_store_refuses_irregular_file(
    copy: Path, tmp_path: Path, strange: Callable[[Path], None], name: str
) -> None:
    url = f"file://{tmp_path}/deep/store"
    push(find(copy), url)
    promote_remote(url, find(copy).name)
    path = tmp_path / "deep" / "store" / (name if name == CURRENT else f"{find(copy).name}/{name}")
    path.unlink()
    strange(path)
    with pytest.raises(ReleaseError, match=path.name) as refused:
        update_copy(url, tmp_path / "copy")
    assert not isinstance(refused.value, StoreError)  # another time is no better
    assert current_id(tmp_path / "copy") is None


def test_link_within_store_is_followed(copy: Path, tmp_path: Path) -> None:
    (copy / "newest").write_text("x")
    (copy / "link").symlink_to("newest")
    assert Store(f"file://{copy}").read("link", 1) == b"x"
    (copy / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(ReleaseError, match="elsewhere/deep: a link to somewhere else"):
        Store(f"file://{copy}").read("elsewhere/deep", 1)


def test_full_disk_is_not_store_error(copy: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space left"):
        Store(f"file://{copy}").download(CURRENT, full, 100)  # type: ignore[arg-type]


def test_directory_refuses_irregular_file(copy: Path, strange: Callable[[Path], None]) -> None:
    for path in (copy / CURRENT, copy / HISTORY):
        path.unlink()
        strange(path)
    with pytest.raises(ReleaseError, match=CURRENT):
        current_id(copy)
    with pytest.raises(ReleaseError, match=HISTORY):
        history.read(copy)


def test_invalid_file_name_is_escaped(copy: Path) -> None:
    """In what every log, reply and terminal can show."""
    release = find(copy)
    Path(os.fsdecode(os.fsencode(release) + b"/\xff\x1b[2J")).touch()
    with pytest.raises(TaugateError) as refused:
        verify(release)
    assert str(refused.value).encode("utf-8").startswith(os.fsencode(release) + rb"/\udcff\x1b[2J: not part of this")
