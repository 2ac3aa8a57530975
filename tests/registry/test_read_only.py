"""A read-only mount: everything that looks works, everything that changes says so in one line."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taugate.registry.catalog import current_id
from taugate.registry.lock import lock_for_reading
from taugate.registry.promotion import promote
from taugate.retrieval.release.layout import MANIFEST
from taugate.retrieval.release.reader import load

Release = Callable[..., tuple[int, str, str]]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@pytest.fixture
def read_only(copy: Path, first: str, three: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the kernel says of such a mount; a test may not mount one, and root passes by every permission."""
    promote(copy, three[0])
    opened = os.open

    def guarded(path: Path | str, flags: int, *arguments: object, **options: object) -> int:
        if flags & WRITES and str(path).startswith(str(copy)):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, flags, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", guarded)
        yield [first, *three]


@pytest.mark.parametrize("action", ["list", "show", "verify", "history", "diff"])
def test_looking_needs_no_right_to_write(read_only: list[str], release: Release, action: str) -> None:
    code, out, _ = release(action, *([read_only[0]] if action == "diff" else []))
    assert code == 0
    assert out


def test_a_dry_run_needs_none(read_only: list[str], release: Release) -> None:
    code, out, _ = release("prune", "--dry-run", "--keep", "1")
    assert (code, out) == (0, f"would prune {read_only[2]}\n")


def test_a_release_is_held_and_opened(copy: Path, read_only: list[str]) -> None:
    with lock_for_reading(copy / read_only[1]):
        assert load(copy / read_only[1]).manifest.release_id == read_only[1]


@pytest.mark.parametrize("action", ["promote", "rollback", "shadow", "prune"])
def test_changing_says_why_it_cannot(copy: Path, read_only: list[str], release: Release, action: str) -> None:
    arguments = {"promote": [read_only[2]], "shadow": [read_only[2]], "rollback": [], "prune": ["--keep", "0"]}
    code, out, error = release(action, *arguments[action])
    assert (code, out) == (2, "")
    assert error.splitlines() == [
        f"taugate: {copy}: cannot be changed from here (Read-only file system: .lock); run this where it is writable"
    ]
    assert current_id(copy) == read_only[1]
    assert all((copy / name / MANIFEST).is_file() for name in read_only)
