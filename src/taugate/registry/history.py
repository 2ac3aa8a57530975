"""Locks of a releases directory, and its history: who promoted, rolled back, shadowed or pruned which release.

All locks are flock, so that nothing has to be cleaned up after a kill -9. Reading the directory needs no lock. An event
is one JSON object on a line, written before the pointer moves, and removed again if the command is ended in between.
After a failure or SIGKILL, the next line, or the pointer itself, shows that the event had no effect.
"""

import os
import pwd
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.errors import ReleaseError
from taugate.release.layout import CURRENT, HISTORY, MANIFEST, SHADOW
from taugate.storage.files import append_lines, read_bounded, sync
from taugate.storage.folders import EXCLUSIVE, SHARED, acquire, exclusive_lock, is_at, open_or_create

CHANGE_LOCK = ".lock"
CALIBRATION_LOCK = ".calibrating.lock"
# A change holds the lock for the milliseconds of one line and one rename, unless its process or disk hangs.
_CHANGE_SECONDS = 30
_PRUNE_SECONDS = 5  # prune locks a release for one rename

_MAX_BYTES = 64 << 20  # 300,000 lines of some 200 bytes
Action = Literal["promote", "rollback", "shadow", "prune"]
# The pointer that an action moves; pruning moves none.
POINTERS: Mapping[str, str] = {"promote": CURRENT, "rollback": CURRENT, "shadow": SHADOW}
# Who acts, as the caller of a command says (--by); user and host are recorded in any case.
NAMED: ContextVar[str | None] = ContextVar("named", default=None)


def change_lock(releases: Path) -> AbstractContextManager[None]:
    """Lock `current`, `shadow`, the history and the removal of releases for a change, and wait for other changes."""

    def busy(holder: str) -> ReleaseError:
        return ReleaseError(
            f"{releases}: {holder} has been changing it for {_CHANGE_SECONDS} s; end that process if it hangs, and try "
            "again"
        )

    return exclusive_lock(releases / CHANGE_LOCK, _CHANGE_SECONDS, busy)


@contextmanager
def calibration_lock(releases: Path) -> Iterator[None]:
    """Lock a directory for a calibration; the lock file is removed afterwards."""
    created = [folder for folder in (releases, *releases.parents) if not folder.exists()]
    releases.mkdir(parents=True, exist_ok=True)

    def busy(holder: str) -> ReleaseError:
        return ReleaseError(
            f"{releases}: {holder} is calibrating into it; wait until that is done, or name another --releases"
        )

    try:
        with exclusive_lock(releases / CALIBRATION_LOCK, 0, busy, temporary=True):
            yield
    finally:
        for folder in created:
            with suppress(OSError):  # not empty
                folder.rmdir()


def lock_for_reading(release: Path) -> ExitStack:
    """Keep a release from being pruned until the returned lock is closed, or the process ends."""
    # Take the lock before reading anything of the release. It is shared and needs no write permission. On a file system
    # without locks it succeeds: serving is more important than pruning.
    path = release / MANIFEST
    with ExitStack() as lock:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # never blocks, even on a named pipe
        except OSError as error:
            raise ReleaseError(f"{path}: cannot be opened ({error.strerror}); promote another release") from error
        lock.callback(os.close, descriptor)
        try:
            acquired = acquire(descriptor, SHARED, _PRUNE_SECONDS)
        except OSError:  # a file system without locks, as of some object stores
            acquired = True
        if not acquired or not is_at(descriptor, path):
            raise ReleaseError(f"{release}: is being pruned; promote another release")
        return lock.pop_all()


@contextmanager
def try_lock_for_removal(release: Path) -> Iterator[bool]:
    """Lock a release exclusively unless it is open; yields whether that succeeded."""
    # While it is locked, no process can open the release. On a file system without locks it fails.
    try:
        descriptor = _open_to_lock(release / MANIFEST)
    except FileNotFoundError:  # a service cannot open a release without a manifest
        yield True
        return
    try:
        yield _try_exclusive(descriptor)
    finally:
        os.close(descriptor)


def _open_to_lock(path: Path) -> int:
    """Open for writing if that is allowed, because NFS locks exclusively only files that are open for writing."""
    flags = os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, os.O_RDWR | flags)
    except FileNotFoundError:
        raise
    except OSError:  # read-only, or another user's
        return os.open(path, os.O_RDONLY | flags)


def _try_exclusive(descriptor: int) -> bool:
    try:
        return acquire(descriptor, EXCLUSIVE)
    except OSError:
        return False


class Event(BaseModel):
    """One line of the history."""

    model_config = ConfigDict(frozen=True)

    at: str  # ISO 8601 time, UTC
    action: str
    # id of the release that the pointer names after it, or that was pruned; None if the pointer was removed
    release: str | None
    previous: str | None  # id that the pointer named before
    by: str
    # name that the command was given, such as that of a job or of the person who started it; None without one
    named: str | None = None
    forced: tuple[str, ...] = ()  # rules that were overridden
    rule: str | None = None  # rule that the release had to meet to be promoted, None without one


@dataclass(frozen=True)
class History:
    """The events of a directory, oldest first."""

    events: Sequence[Event]
    unreadable: Sequence[int]  # numbers, from 1, of lines that are incomplete or not events


def read(releases: Path) -> History:
    """Read the history of a releases directory, empty if nothing was recorded."""
    path = releases / HISTORY
    try:
        lines = read_bounded(path, _MAX_BYTES).split(b"\n")
    except FileNotFoundError:
        return History([], [])
    except OSError as error:
        raise ReleaseError(
            f"{path}: cannot be read ({error.strerror or error}); correct its permissions, or move it away"
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
) -> int:
    """Append an event, with the fields of Event, and wait until it is on disk; the caller holds the change lock."""
    # Returns the size of the history before, for `withdraw`.
    event = Event(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        action=action,
        release=release,
        previous=previous,
        by=_user_at_host(),
        named=NAMED.get(),
        forced=tuple(forced),
        rule=rule,
    )
    absent = {field for field in ("named", "rule") if getattr(event, field) is None}
    line = orjson.dumps(event.model_dump(exclude=absent)) + b"\n"
    path = releases / HISTORY
    descriptor = open_or_create(path, os.O_RDWR | os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        append_lines(descriptor, line)
        sync(descriptor)
        return size
    except OSError as error:
        raise OSError(f"{path}: cannot be written ({error.strerror or error}); nothing was changed") from error
    finally:
        os.close(descriptor)


def withdraw(releases: Path, size: int) -> None:
    """Remove the event that `record` added to a history of that size; the caller still holds the change lock."""
    os.truncate(releases / HISTORY, size)


def took_effect(events: Sequence[Event], pointers: Mapping[str, str | None]) -> list[bool]:
    """Return for each event, oldest first, whether its pointer moved; True if its action moves none."""
    after = dict(pointers)
    done = []
    for event in reversed(events):
        pointer = POINTERS.get(event.action)
        done.append(pointer is None or event.release == after[pointer])
        if pointer is not None:
            after[pointer] = event.previous
    return done[::-1]


def _user_at_host() -> str:
    """Name the user of the process. The environment is not used, because anyone can set it."""
    user = os.geteuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:  # the user of a container often has no name
        name = str(user)
    return f"{name}@{socket.gethostname()}"
