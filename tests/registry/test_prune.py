"""Prune removes complete releases that are not needed, and leftovers of killed commands."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry import history
from taugate.registry.catalog import current_id, release_ids
from taugate.registry.history import lock_for_reading, try_lock_for_removal
from taugate.registry.promotion import promote, rollback, shadow
from taugate.registry.prune import KEEP, prune
from taugate.release.layout import CURRENT, MANIFEST, SHADOW, baseline_path
from taugate.release.verify import verify
from tests.release.clones import clone

Release = Callable[..., tuple[int, str, str]]
OPEN = "open in a service, or its lock cannot be checked"


@pytest.fixture
def many(copy: Path, first: str) -> list[str]:
    """Fourteen releases, oldest first; the current one is not the first of them."""
    shutil.move(copy / first, copy / ".aside")
    names = [clone(copy / ".aside", minute) for minute in range(14)]
    shutil.rmtree(copy / ".aside")
    promote(copy, names[-1])
    return names


def test_prune_keeps_newest_releases(copy: Path, many: list[str], release: Release) -> None:
    code, out, error = release("prune")
    assert code == 0
    assert out.splitlines() == [f"pruned {name}" for name in many[:4]]
    assert error == "10 of 14 releases kept\n"
    assert release_ids(copy) == many[4:] == many[-KEEP:]
    events = history.read(copy).events
    assert [(event.action, event.release) for event in events[-4:]] == [("prune", name) for name in many[:4]]
    assert release("prune")[1:] == ("", "10 of 10 releases kept\n")


def test_concurrent_prunes_remove_releases_once(copy: Path, many: list[str]) -> None:
    """Both have listed the same releases when the second one overtakes."""
    slower = prune(copy)
    assert next(slower).name == many[0]
    assert [each.name for each in prune(copy)] == many[1:4]
    assert list(slower) == []
    pruned = [event.release for event in history.read(copy).events if event.action == "prune"]
    assert pruned == many[:4]
    assert release_ids(copy) == many[4:]


def test_prune_removes_baseline_of_release(copy: Path, many: list[str]) -> None:
    pruned, kept = (baseline_path(copy, name) for name in (many[0], many[-1]))
    for path in (pruned, kept):
        path.write_text("{}", encoding="utf-8")
    assert [each.kept for each in prune(copy, keep=13)] == [None]
    assert not pruned.exists()
    assert kept.exists()


def test_dry_run_removes_nothing(copy: Path, many: list[str], release: Release) -> None:
    before = sorted(path.name for path in copy.iterdir())
    events = len(history.read(copy).events)
    opened = lock_for_reading(copy / many[1])
    code, out, error = release("prune", "--dry-run", "--keep", "11")
    assert code == 0
    assert out.splitlines() == [f"would prune {many[0]}", f"would prune {many[2]}"]
    assert error.splitlines() == [f"kept {many[1]}: {OPEN}", "12 of 14 releases kept"]
    assert sorted(path.name for path in copy.iterdir()) == before
    assert len(history.read(copy).events) == events
    opened.close()


def test_needed_releases_are_kept(copy: Path, many: list[str], release: Release) -> None:
    """The oldest are the current one, its parent, where a rollback goes to, the shadow and one that is open."""
    child = clone(copy / many[0], -1, parent=many[2])
    promote(copy, many[1])
    promote(copy, child)
    shadow(copy, many[3])
    with lock_for_reading(copy / many[4]):
        code, out, error = release("prune", "--keep", "0")
    assert code == 0
    assert release_ids(copy) == [child, *many[1:5]]
    assert out.splitlines() == [f"pruned {name}" for name in [many[0], *many[5:]]]
    assert error.splitlines() == [
        f"kept {child}: current",
        f"kept {many[1]}: target of a rollback",
        f"kept {many[2]}: parent of the current release",
        f"kept {many[3]}: shadow",
        f"kept {many[4]}: {OPEN}",
        "5 of 15 releases kept",
    ]
    for name in release_ids(copy):
        verify(copy / name)
    assert rollback(copy) == many[1]


def test_closed_release_is_pruned(copy: Path, many: list[str]) -> None:
    opened, again = lock_for_reading(copy / many[0]), lock_for_reading(copy / many[0])
    opened.close()
    opened.close()
    assert [outcome.kept for outcome in prune(copy, 13)] == [OPEN]
    again.close()
    assert [outcome.kept for outcome in prune(copy, 13)] == [None]
    with pytest.raises(ReleaseError, match=MANIFEST):
        lock_for_reading(copy / many[0])


def test_opening_pruned_release_is_refused(copy: Path, many: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Prune is quicker: the service has the manifest's descriptor, and waits for the lock."""
    acquire = history.acquire  # type: ignore[attr-defined]  # patched where it is used

    def late(*arguments: object) -> bool:
        with monkeypatch.context() as patched:
            patched.setattr(history, "acquire", acquire)
            list(prune(copy, 13))
        return acquire(*arguments)

    monkeypatch.setattr(history, "acquire", late)
    with pytest.raises(ReleaseError, match="is being pruned"):
        lock_for_reading(copy / many[0])


def test_release_being_pruned_cannot_be_opened(copy: Path, many: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_PRUNE_SECONDS", 0.1)
    with try_lock_for_removal(copy / many[0]) as free, pytest.raises(ReleaseError, match="is being pruned"):
        assert free
        lock_for_reading(copy / many[0])
    lock_for_reading(copy / many[0]).close()


def test_releases_are_kept_without_file_locks(copy: Path, many: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> bool:
        raise OSError("no locks available")

    monkeypatch.setattr(history, "acquire", none)
    lock_for_reading(copy / many[0]).close()
    assert [outcome.kept for outcome in prune(copy, 13)] == [OPEN]
    assert release_ids(copy) == many


def test_read_only_manifests_are_locked(copy: Path, many: list[str]) -> None:
    for name in many[:2]:
        (copy / name / MANIFEST).chmod(0o444)
    with lock_for_reading(copy / many[1]):
        assert [outcome.kept for outcome in prune(copy, 12)] == [None, OPEN]


def test_folder_without_manifest_is_pruned(copy: Path, many: list[str]) -> None:
    (copy / many[0] / MANIFEST).unlink()
    assert [outcome.name for outcome in prune(copy, 13)] == [many[0]]


@pytest.mark.parametrize("pointer", [CURRENT, SHADOW])
def test_invalid_pointer_stops_prune(copy: Path, many: list[str], release: Release, pointer: str) -> None:
    (copy / pointer).write_bytes(b"nonsense")
    for more in ([], ["--dry-run"]):
        code, out, error = release("prune", "--keep", "1", *more)
        assert (code, out) == (2, "")
        assert pointer in error
    assert release_ids(copy) == many


def test_leftovers_of_killed_commands_are_removed(copy: Path, first: str, release: Release) -> None:
    aged, young = copy / ".staging-aged", copy / ".staging-young"
    writing = copy / ".staging-writing"
    for folder in (copy / ".pruned-20200101T000000Z-000000000000", aged, young, writing):
        folder.mkdir()
        (folder / "file").write_bytes(b"left")
    two_minutes_ago = time.time() - 120
    for folder in (aged, writing):
        os.utime(folder, (two_minutes_ago, two_minutes_ago))
    descriptor = os.open(writing, os.O_RDONLY)
    try:
        assert history.acquire(descriptor, history.SHARED)  # type: ignore[attr-defined]  # patched where it is used
        assert release("prune", "--dry-run")[0] == 0
        assert aged.exists()
        assert release("prune")[0] == 0
    finally:
        os.close(descriptor)
    assert {path.name for path in copy.iterdir() if path.is_dir()} == {young.name, writing.name, first}


def test_prune_works_on_full_disk(copy: Path, many: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that has no room before the removal has it after."""
    write = os.write

    def full(descriptor: int, line: bytes) -> int:
        if (copy / many[0]).exists() or (copy / f".pruned-{many[0]}").exists():
            raise OSError(28, "No space left on device")
        return write(descriptor, line)

    monkeypatch.setattr(os, "write", full)
    assert [outcome.name for outcome in prune(copy, 13)] == [many[0]]
    assert history.read(copy).events[-1].release == many[0]


@pytest.mark.parametrize("keep", ["-1", "-100"])
def test_negative_keep_is_refused(copy: Path, first: str, release: Release, keep: str) -> None:
    code, _, error = release("prune", "--keep", keep)
    assert code == 2
    assert f"--keep {keep}" in error
    assert current_id(copy) == first
