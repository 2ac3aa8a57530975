"""Move `current` or `shadow`: recorded first, then replaced in one step."""

import os
from collections.abc import Sequence
from pathlib import Path

from taugate.registry.catalog import pointed_id, sync_folder
from taugate.registry.history import POINTERS, Action, record


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
