"""Which releases were current before the current one: the way back, replayed from the history."""

from pathlib import Path

from taugate.registry import outline
from taugate.registry.catalog import pointed_id, release_ids
from taugate.registry.history import POINTERS, Event, read, took_effect
from taugate.retrieval.release.layout import CURRENT, SHADOW


def earlier(releases: Path) -> list[str]:
    """Ids of releases that are still there, the one before the current one first.

    A rollback takes back the promotions after the release that it went to, so that a second one goes further back and
    not forth. Beyond the history, and without one, it is the parents that the manifests name.
    """
    current = pointed_id(releases, CURRENT)
    stack = _replayed(_moves(releases))
    names = [*reversed(stack), *_parents(releases, stack[0] if stack else current)]
    there = set(release_ids(releases)) - {current}
    return [name for name in dict.fromkeys(names) if name in there]


def _moves(releases: Path) -> list[Event]:
    """What moved `current`, oldest first."""
    events = read(releases).events
    done = took_effect(events, {pointer: pointed_id(releases, pointer) for pointer in (CURRENT, SHADOW)})
    return [event for event, moved in zip(events, done, strict=True) if moved and POINTERS.get(event.action) == CURRENT]


def _replayed(moves: list[Event]) -> list[str]:
    """The current release last, before it those that led to it."""
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


def _parents(releases: Path, name: str | None) -> list[str]:
    found: list[str] = []
    parent = outline.parent(releases, name)
    while parent is not None and parent not in found:
        found.append(parent)
        parent = outline.parent(releases, parent)
    return found
