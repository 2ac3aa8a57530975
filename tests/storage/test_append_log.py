"""Lines are appended completely, and a torn line does not damage others."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.storage.files import append_lines


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
