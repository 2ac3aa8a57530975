"""The history of a releases directory: who promoted, rolled back, shadowed or pruned what, and when.

It is one JSON object a line, written before the pointer moves. A line whose move did not follow, as its process was
killed in between, does no harm: the next line, or the pointer itself, says what was current after it.
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
from taugate.retrieval.release.layout import CURRENT, HISTORY, SHADOW
from taugate.storage.files import append_lines, read_bounded, sync
from taugate.storage.locks import open_or_create

_MAX_BYTES = 64 << 20  # a line has some 200: 300,000 promotions
Action = Literal["promote", "rollback", "shadow", "prune"]
# Which pointer an action moves; a pruned release is no pointer's any more.
POINTERS: Mapping[str, str] = {"promote": CURRENT, "rollback": CURRENT, "shadow": SHADOW}


class Event(BaseModel):
    """One line of the history.

    Attributes:
        at: ISO 8601 time, UTC.
        action: An Action, or one that a later version knows.
        release: The id that the pointer was to name, or that was pruned; None for a pointer that was removed.
        previous: The id that the pointer named before.
        by: User and host.
        forced: The rules that were set aside.
        rule: The rule that the release had to meet to be promoted; None where there was none.
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
    """The events of a directory, oldest first.

    Attributes:
        unreadable: Numbers, from 1, of lines that are torn or no events.
    """

    events: Sequence[Event]
    unreadable: Sequence[int]


def read(releases: Path) -> History:
    """Read the history of a releases directory; empty where nothing was recorded.

    Raises:
        ReleaseError: Where the file cannot be read.
    """
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
) -> None:
    """Append an event and wait until it is on the disk; the caller has the change lock.

    Args:
        releases: The releases directory. The other parameters are the fields of Event.

    Raises:
        OSError: ; then nothing may be moved.
    """
    event = Event(
        at=_now(),
        action=action,
        release=release,
        previous=previous,
        by=_user_at_host(),
        forced=tuple(forced),
        rule=rule,
    )
    line = orjson.dumps(event.model_dump(exclude=None if rule else {"rule"})) + b"\n"
    path = releases / HISTORY
    descriptor = open_or_create(path, os.O_RDWR | os.O_APPEND)
    try:
        append_lines(descriptor, line)
        sync(descriptor)
    except OSError as error:
        raise OSError(f"{path}: cannot be written ({error.strerror or error}); nothing was changed") from error
    finally:
        os.close(descriptor)


def took_effect(events: Sequence[Event], pointers: Mapping[str, str | None]) -> list[bool]:
    """Tell of each event whether its pointer moved; an event that moves no pointer counts as one that did.

    Args:
        events: Oldest first.
        pointers: The release id that each pointer names now.
    """
    after = dict(pointers)
    done = []
    for event in reversed(events):
        pointer = POINTERS.get(event.action)
        done.append(pointer is None or event.release == after[pointer])
        if pointer is not None:
            after[pointer] = event.previous
    return done[::-1]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user_at_host() -> str:
    """Name the user by the process and not by the environment, which anybody sets as they like."""
    user = os.geteuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:  # a container's user often has no name
        name = str(user)
    return f"{name}@{socket.gethostname()}"
