"""A read-only mount: reading works, and changes are refused in one line."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taugate.registry.catalog import current_id
from taugate.registry.history import lock_for_reading
from taugate.registry.promotion import promote
from taugate.release.layout import MANIFEST
from taugate.retrieval.reader import load

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
def test_read_commands_work_read_only(read_only: list[str], release: Release, action: str) -> None:
    code, out, _ = release(action, *([read_only[0]] if action == "diff" else []))
    assert code == 0
    assert out


def test_dry_run_works_read_only(read_only: list[str], release: Release) -> None:
    code, out, _ = release("prune", "--dry-run", "--keep", "1")
    assert (code, out) == (0, f"would prune {read_only[2]}\n")


def test_release_is_opened_read_only(copy: Path, read_only: list[str]) -> None:
    with lock_for_reading(copy / read_only[1]):
        assert load(copy / read_only[1]).manifest.release_id == read_only[1]


@pytest.mark.parametrize("action", ["promote", "rollback", "shadow", "prune"])
def test_change_of_read_only_directory_is_refused(
    copy: Path, read_only: list[str], release: Release, action: str
) -> None:
    arguments = {"promote": [read_only[2]], "shadow": [read_only[2]], "rollback": [], "prune": ["--keep", "0"]}
    code, out, error = release(action, *arguments[action])
    assert (code, out) == (2, "")
    assert error.splitlines() == [
        f"taugate: {copy}: is not writable (Read-only file system: .lock); run the command where it is"
    ]
    assert current_id(copy) == read_only[1]
    assert all((copy / name / MANIFEST).is_file() for name in read_only)
