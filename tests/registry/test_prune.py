"""Prune removes complete releases that are not needed, and leftovers of killed commands."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry import history, promotion
from taugate.registry.catalog import current_id, release_ids
from taugate.registry.history import lock_for_reading, record, try_lock_for_removal
from taugate.registry.promotion import promote, rollback, rollback_targets, shadow
from taugate.registry.prune import KEEP, prune
from taugate.release.layout import CURRENT, HISTORY, MANIFEST, SHADOW, baseline_path
from taugate.release.verify import verify
from tests.release.clones import clone, of_another_encoder, without_a_cut

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


def promote_all(copy: Path, names: list[str]) -> None:
    for name in names:
        promote(copy, name)


def test_repeated_rollback_goes_further_back(copy: Path, first: str, three: list[str], release: Release) -> None:
    a, b, c = three
    promote_all(copy, three)
    for expected in (b, a, first):
        code, out, error = release("rollback")
        assert (code, out) == (0, f"* {expected}\n")
        assert "SIGHUP, or POST /admin/reload" in error, "what happens next"
        assert current_id(copy) == expected
    code, out, error = release("rollback")
    assert (code, out) == (2, "")
    assert error == (f"taugate: {copy}: {first} has no earlier release to roll back to; promote one ({c}, {b}, {a})\n")


def test_promotion_after_rollback_extends_stack(copy: Path, first: str, three: list[str]) -> None:
    a, b, c = three
    promote_all(copy, [a, b])
    assert rollback(copy) == a
    promote(copy, c)
    assert rollback_targets(copy) == [a, first]
    promote(copy, a)
    assert rollback_targets(copy) == [c, first], "once each, the latest place first"
    assert [rollback(copy), rollback(copy), rollback(copy)] == [c, a, first]


def test_rollback_to_named_release_skips_others(copy: Path, first: str, three: list[str], release: Release) -> None:
    a, b, c = three
    promote_all(copy, three)
    assert release("rollback", a)[:2] == (0, f"* {a}\n")
    assert rollback_targets(copy) == [first]
    code, _, error = release("rollback", c)
    assert code == 2
    assert f"{c} was never current before {a}; earlier releases: {first}; promote one ({c}, {b}, {first})" in error


@pytest.mark.parametrize("name", ["nonsense", "../../etc", "20200101T000000Z-000000000000", ""])
def test_rollback_to_unknown_release_is_refused(copy: Path, first: str, release: Release, name: str) -> None:
    assert release("rollback", name)[0] == 2
    assert current_id(copy) == first


def test_rollback_needs_no_options(copy: Path, first: str) -> None:
    """What was in force once was meant: a rollback is for bad days."""
    odd = clone(copy / first, 0, lambda manifest: (of_another_encoder(manifest), without_a_cut(manifest)))
    promote(copy, odd, force=True, new_encoder=True)
    promote(copy, first, new_encoder=True)
    assert rollback(copy) == odd


def test_rollback_to_damaged_release_is_refused(copy: Path, first: str, three: list[str], release: Release) -> None:
    promote_all(copy, three[:2])
    (copy / three[0] / MANIFEST).write_bytes(b"{")
    code, _, error = release("rollback")
    assert code == 2
    assert MANIFEST in error
    assert current_id(copy) == three[1]
    assert release("rollback", first)[0] == 0


def test_rollback_skips_removed_releases(copy: Path, first: str, three: list[str]) -> None:
    promote_all(copy, three)
    for gone in three[1:]:  # also the current one, which is the worst of days
        shutil.rmtree(copy / gone)
    assert rollback(copy) == three[0]
    assert rollback(copy) == first


def test_rollback_follows_parents_without_history(copy: Path, first: str) -> None:
    second = clone(copy / first, 0, parent=first)
    third = clone(copy / first, 1, parent=second)
    (copy / HISTORY).unlink()
    (copy / CURRENT).write_text(third + "\n", encoding="ascii")
    assert rollback_targets(copy) == [second, first]
    assert rollback(copy) == second
    assert rollback_targets(copy) == [first], "from the history, then on by the parents"
    assert rollback(copy) == first


def test_circular_parents_are_handled(copy: Path, first: str) -> None:
    second = clone(copy / first, 0, parent="20300101T000100Z-" + first[-12:])
    third = clone(copy / first, 1, parent=second)
    assert third == "20300101T000100Z-" + first[-12:]
    (copy / HISTORY).unlink()
    (copy / CURRENT).write_text(third + "\n", encoding="ascii")
    assert rollback_targets(copy) == [second]


def test_rollback_needs_current_release(copy: Path, first: str, release: Release) -> None:
    (copy / CURRENT).unlink()
    code, _, error = release("rollback")
    assert code == 2
    assert error == f"taugate: {copy}: no release is current; promote one ({first})\n"


def test_interrupted_promotion_is_not_rollback_target(copy: Path, first: str, three: list[str]) -> None:
    a, b, c = three
    promote(copy, a)
    record(copy, "promote", b, a)  # and killed before the pointer moved
    assert rollback_targets(copy) == [first]
    promote(copy, c)
    assert rollback_targets(copy) == [a, first]
    record(copy, "rollback", a, c)
    assert rollback_targets(copy) == [a, first]


def test_manually_set_release_is_rollback_target(copy: Path, first: str, three: list[str]) -> None:
    a, b, _ = three
    (copy / CURRENT).write_text(a + "\n", encoding="ascii")
    promote(copy, b)
    assert rollback(copy) == a


def test_concurrent_rollback_is_refused(
    copy: Path, first: str, three: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who decided on what another has left by then is told so."""
    promote_all(copy, three)
    verify = promotion.verify_with_collection  # type: ignore[attr-defined]  # patched where it is used

    def slow(folder: Path, trusted: None) -> object:
        with monkeypatch.context() as patched:
            patched.setattr(promotion, "verify_with_collection", verify)
            rollback(copy)
        return verify(folder, trusted)

    monkeypatch.setattr(promotion, "verify_with_collection", slow)
    with pytest.raises(ReleaseError, match="in the meantime"):
        rollback(copy)
    assert current_id(copy) == three[1]
