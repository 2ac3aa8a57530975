"""The pointers `current` and `shadow`: files that name a release, how they move, and where `current` can go back to."""

from collections.abc import Sequence
from pathlib import Path

from taugate.registry.catalog import parent_of, pointed_id, release_ids
from taugate.registry.history import POINTERS, Action, Event, read, record, took_effect
from taugate.retrieval.release.layout import CURRENT, SHADOW
from taugate.storage.files import atomic_write, sync_folder


def move_pointer(
    releases: Path, action: Action, name: str | None, forced: Sequence[str] = (), rule: str | None = None
) -> None:
    """Record an action and let its pointer name a release; the caller has the change lock.

    A reader sees the old id or the new one, never less.

    releases: the releases directory. action: promote, rollback or shadow. name: the release's id; None removes the
    pointer. forced: the rules that were set aside. rule: the rule that the release had to meet, None for none. Raises
    OSError; then the pointer is as it was.
    """
    pointer = releases / POINTERS[action]
    record(releases, action, name, pointed_id(releases, pointer.name), forced, rule)
    if name is None:
        pointer.unlink(missing_ok=True)
        sync_folder(releases)
        return
    try:
        atomic_write(pointer, f"{name}\n".encode("ascii"))
    except OSError as error:
        raise OSError(f"{pointer}: cannot be replaced ({error.strerror}); it is unchanged") from error


def rollback_targets(releases: Path) -> list[str]:
    """Return the ids of releases that were current before and are still there, the latest first.

    A rollback undoes the promotions after the release that it went to, so that a second one goes further back and not
    forth. Beyond the history, and without one, the parents that the manifests name stand in.

    releases: the releases directory. Raises ReleaseError where there is no directory, or its history cannot be read.
    """
    current = pointed_id(releases, CURRENT)
    stack = _promotion_stack(_moves_of_current(releases))
    names = [*reversed(stack), *_ancestors(releases, stack[0] if stack else current)]
    there = set(release_ids(releases)) - {current}
    return [name for name in dict.fromkeys(names) if name in there]


def _moves_of_current(releases: Path) -> list[Event]:
    """Return the events that moved `current`, oldest first."""
    events = read(releases).events
    done = took_effect(events, {pointer: pointed_id(releases, pointer) for pointer in (CURRENT, SHADOW)})
    return [event for event, moved in zip(events, done, strict=True) if moved and POINTERS.get(event.action) == CURRENT]


def _promotion_stack(moves: list[Event]) -> list[str]:
    """Replay moves of `current`: the current release is last, before it stand those that led to it."""
    stack: list[str] = []
    for event in moves:
        if event.previous is not None and stack[-1:] != [event.previous]:  # the first, or one that was not recorded
            stack.append(event.previous)
        if event.release is None:
            continue
        if event.action == "rollback":  # to one of the stack, or beyond it to a parent
            while stack and stack[-1] != event.release:
                stack.pop()
        if stack[-1:] != [event.release]:
            stack.append(event.release)
    return stack


def _ancestors(releases: Path, name: str | None) -> list[str]:
    """Return the parent of a release, its parent, and so on."""
    found: list[str] = []
    parent = parent_of(releases, name)
    while parent is not None and parent not in found:
        found.append(parent)
        parent = parent_of(releases, parent)
    return found
