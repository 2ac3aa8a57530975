"""Folders and object storage as places: equal calls and results."""

import io
from pathlib import Path

import pytest

from taugate.storage.object_store import Folder, Place, open_place


@pytest.fixture(params=["folder", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    folder = tmp_path / "place"
    return open_place(str(folder) if request.param == "folder" else f"file://{folder}")


def test_place_writes_reads_and_removes(place: Place, tmp_path: Path) -> None:
    assert place.size("a/b") is None
    with pytest.raises(FileNotFoundError):
        place.read("a/b", 10)
    with pytest.raises(FileNotFoundError):
        place.download("a/b", None, 10)
    place.write("a/b", b"first")
    place.write("a/b", b"content")
    assert (place.size("a/b"), place.read("a/b", 7)) == (7, b"content")
    target = io.BytesIO()
    size, digest = place.download("a/b", target, 100)
    assert (size, target.getvalue()) == (7, b"content")
    assert digest == "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == ["place/a/b"]
    place.remove("a/b")
    place.remove("a/b")
    assert place.size("a/b") is None


def test_oversized_file_is_refused(place: Place) -> None:
    place.write("long", b"12345")
    with pytest.raises(Exception, match="more than 4 bytes"):
        place.read("long", 4)


def test_failed_write_keeps_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    folder = Folder(tmp_path)
    folder.write("name", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write("name", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["name"]
    assert (tmp_path / "name").read_bytes() == b"old"
