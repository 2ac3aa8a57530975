"""Lines are appended completely, and a torn line does not damage others."""

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models

from taugate.errors import ReleaseError
from taugate.storage.files import append_lines, atomic_write, disk_failure
from taugate.storage.object_store import Folder, Place, open_place
from taugate.storage.tensors import map_tensors, read_tensors, tensor_bytes, write_tensors


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A log with one line, and a descriptor to append to it."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"first\n")
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    yield path, descriptor
    os.close(descriptor)


def test_lines_are_appended_to_log(log: tuple[Path, int]) -> None:
    path, descriptor = log
    append_lines(descriptor, b"second\n")
    append_lines(descriptor, b"third\nfourth\n")
    assert path.read_bytes() == b"first\nsecond\nthird\nfourth\n"


def test_torn_line_is_ended(log: tuple[Path, int]) -> None:
    path, descriptor = log
    path.write_bytes(b"first\nhalf")
    append_lines(descriptor, b"second\n")
    assert path.read_bytes() == b"first\nhalf\nsecond\n"


def test_short_writes_are_continued(log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    path, descriptor = log
    write = os.write
    monkeypatch.setattr(os, "write", lambda to, content: write(to, content[:3]))
    append_lines(descriptor, b"second\n")
    assert path.read_bytes() == b"first\nsecond\n"


@pytest.mark.parametrize("before", [b"first\n", b"first\nhalf"])
def test_full_disk_leaves_log_unchanged(log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch, before: bytes) -> None:
    path, descriptor = log
    path.write_bytes(before)
    write, written = os.write, []

    def full(to: int, content: bytes) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(write(to, content[:3]))
        return written[0]

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        append_lines(descriptor, b"second\n")
    assert written == [3]
    assert path.read_bytes() == before


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


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A file to which every write fails as on a full disk; a link, as a library may rename another file over it."""
    (tmp_path / "full").symlink_to("/dev/full")
    return tmp_path / "full"


def text(path: Path) -> None:
    path.write_text("text")


def tokenizer(path: Path) -> None:
    Tokenizer(models.WordLevel({"word": 0}, "word")).save(str(path))


@pytest.mark.parametrize("write", [text, tokenizer])
def test_system_message_is_extracted(write: Callable[[Path], object], full: Path) -> None:
    with pytest.raises(Exception, match="No space left") as raised:
        write(full)
    assert disk_failure(raised.value) == "No space left on device"


def test_safetensors_quotes_the_system(tmp_path: Path) -> None:
    with pytest.raises(SafetensorError) as raised:
        save_file({"weights": np.ones(1)}, tmp_path / "nowhere" / "weights")
    assert disk_failure(raised.value) == "No such file or directory"


def test_pytorch_only_counts_bytes(full: Path) -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.save(torch.ones(1 << 16), full)
    assert disk_failure(raised.value) == "a file cannot be written completely; the disk may be full"


def test_any_other_error_is_none() -> None:
    assert disk_failure(RuntimeError("shapes differ")) is None
    assert disk_failure(ValueError("")) is None


TYPES = (np.uint8, np.uint16, np.uint32, np.uint64, np.int64, np.float32, np.float64)


def written(path: Path, header: object, data: bytes = bytes(8)) -> Path:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    return path


def record(**changes: object) -> dict:
    return {"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]} | changes}


def test_mapped_arrays_equal_read_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {str(dtype): rng.integers(0, 99, (3, 5)).astype(dtype) for dtype in TYPES}
    arrays |= {
        "none": np.empty((0, 4), np.float32),
        "odd": np.arange(3, dtype=np.uint8),
        "turned é": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    }
    path = tmp_path / "arrays"
    write_tensors(path, arrays | {"odd": arrays["odd"] > 1})
    assert path.read_bytes() == tensor_bytes(arrays | {"odd": arrays["odd"] > 1})
    write_tensors(path, arrays)
    assert path.read_bytes() == tensor_bytes(arrays)
    mapped, read = map_tensors(path), read_tensors(path)
    assert mapped.keys() == read.keys() == arrays.keys()
    for name, array in mapped.items():
        assert (array.dtype, array.shape) == (arrays[name].dtype, arrays[name].shape)
        np.testing.assert_array_equal(array, read[name])
        assert not array.flags.writeable


def test_notes_of_a_file_are_no_array(tmp_path: Path) -> None:
    save_file({"a": np.arange(3)}, tmp_path / "arrays", metadata={"format": "np"})
    assert [*map_tensors(tmp_path / "arrays")] == ["a"]


HEADERS = {
    "no JSON": b"x" * 16,
    "not a table": [1, 2],
    "type without a mapping": record(dtype="F8_E5M2", shape=[8]),
    "boolean": record(dtype="BOOL"),
    "shape of more": record(shape=[9]),
    "shape of fewer": record(shape=[7]),
    "shape negative": record(shape=[-8]),
    "shape that overflows": record(shape=[0, (1 << 64) - 1], data_offsets=[0, 0]),
    "shape whose product overflows": record(shape=[1 << 62, 1 << 62]),
    "data beyond the end": record(shape=[9], data_offsets=[0, 9]),
    "data from the middle": record(shape=[4], data_offsets=[4, 8]),
    "data backwards": record(shape=[8], data_offsets=[8, 0]),
    "two of the same place": record() | {"b": record()["a"]},
    "without a shape": {"a": {"dtype": "U8", "data_offsets": [0, 8]}},
    "nested deeply": b"[" * 4000,
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_hostile_header_is_refused(tmp_path: Path, header: object) -> None:
    with pytest.raises(ReleaseError, match="arrays: cannot be read as safetensors; calibrate again"):
        map_tensors(written(tmp_path / "arrays", header))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1 << 20, 1 << 40, (1 << 64) - 1])
def test_header_longer_than_file_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "arrays"
    path.write_bytes(length.to_bytes(8, "little"))
    with pytest.raises(ReleaseError, match="cannot be read as safetensors"):
        map_tensors(path)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ReleaseError, match="cannot be read as safetensors"):
            map_tensors(path)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ReleaseError, match="cannot be read as safetensors"):
        map_tensors(tmp_path / "empty")


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


def test_failed_write_of_a_place_keeps_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
