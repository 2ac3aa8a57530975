"""Who promoted what and when: one JSON object a line, written before the pointer moves.

A line whose move did not follow (its process was killed in between, or the disk was full) is no lie: the next line, or
the pointer itself, says what was current after it.
"""

import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.errors import ReleaseError
from taugate.registry import catalog as outline
from taugate.registry.catalog import pointed_id, release_ids, sync_folder
from taugate.retrieval.release.layout import CURRENT, HISTORY, SHADOW
from taugate.storage.files import read_plain
from taugate.storage.locks import open_shared

_MOST_BYTES = 64 << 20  # a line has some 200: 300,000 promotions
Action = Literal["promote", "rollback", "shadow", "prune"]
# Which pointer an action moves; what is pruned is no pointer's any more.
POINTERS: Mapping[str, str] = {"promote": CURRENT, "rollback": CURRENT, "shadow": SHADOW}


class Event(BaseModel):
    """One line of the file.

    at: ISO 8601, UTC; action: an Action, or one of a later version; previous: what the pointer named before; forced:
    rules that were set aside; rule: what was asked of a release before it was promoted, None where nothing was.
    """

    model_config = ConfigDict(frozen=True)

    at: str
    action: str
    release: str | None
    previous: str | None
    by: str
    forced: tuple[str, ...] = ()
    rule: str | None = None


@dataclass(frozen=True)
class History:
    """events: oldest first; unreadable: numbers of the lines, from 1, that are none, of a write that was cut short."""

    events: Sequence[Event]
    unreadable: Sequence[int]


def read(releases: Path) -> History:
    """The history of a directory, empty where nothing was recorded. Raises ReleaseError where it cannot be read."""
    path = releases / HISTORY
    try:
        lines = read_plain(path, _MOST_BYTES).split(b"\n")
    except FileNotFoundError:
        return History([], [])
    except OSError as error:
        raise ReleaseError(
            f"{path}: cannot be read ({error.strerror or error}); mend its permissions, or move it away"
        ) from error
    events, unreadable = [], []
    for number, line in enumerate(lines, start=1):
        try:
            if line:
                events.append(Event.model_validate(orjson.loads(line)))
        except (orjson.JSONDecodeError, ValidationError):
            unreadable.append(number)
    return History(events, unreadable)


def record(
    releases: Path,
    action: Action,
    release: str | None,
    previous: str | None,
    forced: Sequence[str] = (),
    rule: str | None = None,
) -> None:
    """Append a line and see it on the disk; the caller holds the lock. Raises OSError; then nothing may be moved."""
    event = Event(
        at=_now(), action=action, release=release, previous=previous, by=_who(), forced=tuple(forced), rule=rule
    )
    line = orjson.dumps(event.model_dump(exclude=None if rule else {"rule"})) + b"\n"
    path = releases / HISTORY
    descriptor = open_shared(path, os.O_RDWR | os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # the last writer was cut short
            line = b"\n" + line
        if os.write(descriptor, line) != len(line):
            raise OSError("the disk is full")
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(f"{path}: cannot be written ({error.strerror or error}); nothing was changed") from error
    finally:
        os.close(descriptor)


def took_effect(events: Sequence[Event], releases: Mapping[str, str | None]) -> list[bool]:
    """Of each event whether its pointer moved.

    releases: what each pointer names now. An event of no pointer counts as one that did.
    """
    after = dict(releases)
    done = []
    for event in reversed(events):
        pointer = POINTERS.get(event.action)
        done.append(pointer is None or event.release == after[pointer])
        if pointer is not None:
            after[pointer] = event.previous
    return done[::-1]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _who() -> str:
    """The user by the process and not by the environment, which anybody sets as they like."""
    user = os.geteuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:  # a container's user often has no name
        name = str(user)
    return f"{name}@{socket.gethostname()}"


def move(releases: Path, action: Action, name: str | None, forced: Sequence[str] = (), rule: str | None = None) -> None:
    """Let the pointer of an action name a release, or nothing; the caller holds the lock.

    A reader sees the old id or the new one, never less. Raises OSError; then the pointer is as it was.
    """
    pointer = POINTERS[action]
    record(releases, action, name, pointed_id(releases, pointer), forced, rule)
    if name is None:
        (releases / pointer).unlink(missing_ok=True)
    else:
        _replace(releases / pointer, name)
    sync_folder(releases)


def _replace(pointer: Path, name: str) -> None:
    partial = pointer.with_name(f".{pointer.name}.new")  # only who holds the lock writes it
    partial.unlink(missing_ok=True)  # of another user who was killed
    try:
        with partial.open("x", encoding="ascii") as file:
            file.write(name + "\n")
            file.flush()
            os.fchmod(file.fileno(), 0o644)  # whoever serves may be another user
            os.fsync(file.fileno())
        partial.replace(pointer)
    except OSError as error:
        raise OSError(f"{pointer}: cannot be replaced ({error.strerror}); it is as it was") from error
    finally:
        partial.unlink(missing_ok=True)


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
