"""Replaces old texts in the query log by their hashes while all workers continue writing to it.

First, a copy without the old texts is made while others append to the log. Then the log is locked, the lines added
since are copied as well, and the copy replaces the log. A writer that waited for the lock sees that the path now
belongs to another file, and opens that one.
"""

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import orjson

from taugate.drift.observations import hashed
from taugate.drift.query_log import hashed_filter, is_hash
from taugate.storage.files import set_mode, sync, sync_folder
from taugate.storage.locks import EXCLUSIVE, acquire, is_at

_EVERY_SECONDS = 3600.0
_LOCK_SECONDS = 10.0  # writers keep the lock for a millisecond
_DAY_SECONDS = 86400.0


def forget_old_texts(log: Path, days: float, now: float) -> int:
    """Hash the queries and filters of lines older than `days`, at a Unix time; returns how many lines were changed.

    One process does this at a time, and all processes together once an hour; otherwise 0 is returned. The log need not
    exist, and is left alone unless it is a regular file.

    Raises:
        OSError: If the folder is not writable or has no locks. The log is then unchanged.
    """
    log = log.resolve()
    try:
        if not stat.S_ISREG(log.stat().st_mode):
            return 0
    except FileNotFoundError:
        return 0
    turn = os.open(log.with_name(f".{log.name}.texts"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # The file is empty before the first turn, and its modification time is that of the last one.
        status = os.fstat(turn)
        if not acquire(turn, EXCLUSIVE) or (status.st_size and now - status.st_mtime < _EVERY_SECONDS):
            return 0
        changed = _replace(log, now - days * _DAY_SECONDS)
        os.pwrite(turn, b"\n", 0)
        os.utime(turn, (now, now))
        return changed
    finally:
        os.close(turn)


def _replace(log: Path, before: float) -> int:
    # Always the same name: a copy with texts that a killed process has left is deleted at the next turn.
    copy = log.with_name(f".{log.name}.copy")
    copy.unlink(missing_ok=True)
    try:
        descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as new, log.open("r+b") as old:
            set_mode(new.fileno(), stat.S_IMODE(os.fstat(old.fileno()).st_mode))
            _lock(old)
            end = os.fstat(old.fileno()).st_size  # lines up to here are complete and do not change
            fcntl.flock(old, fcntl.LOCK_UN)
            changed = _copy(old, new, end, before)
            if not changed:
                return 0
            _lock(old)
            added = os.fstat(old.fileno()).st_size - end
            # Moved or truncated since, as by logrotate: the copy no longer corresponds to the file at the path.
            if not is_at(old.fileno(), log) or added < 0:
                return 0
            new.write(os.pread(old.fileno(), added, end))  # past what `old` may have buffered
            new.flush()
            sync(new.fileno())
            copy.replace(log)
        sync_folder(log.parent)
        return changed
    finally:
        copy.unlink(missing_ok=True)


def _copy(old: BinaryIO, new: BinaryIO, end: int, before: float) -> int:
    """Copy the lines up to `end`, hashing texts older than `before`; returns how many lines were changed."""
    changed = 0
    while line := old.readline(end - old.tell()):  # empty at the end, and if the log was truncated in the meantime
        shorter = _without_text(line, before)
        changed += shorter != line
        new.write(shorter)
    return changed


def _without_text(line: bytes, before: float) -> bytes:
    """Return a line with hashes in place of texts if it is older than `before`; other lines are unchanged."""
    with suppress(orjson.JSONDecodeError):
        record = orjson.loads(line)
        if isinstance(record, dict) and isinstance(at := record.get("at"), int | float) and at < before:
            texts: dict[str, str] = {}
            if isinstance(query := record.get("query"), str) and not is_hash(query):
                texts["query"] = hashed(query)
            if isinstance(query_filter := record.get("filter"), dict):
                texts["filter"] = hashed_filter(query_filter)
            if texts:
                return orjson.dumps(record | texts) + b"\n"
    return line


def _lock(file: BinaryIO) -> None:
    if not acquire(file.fileno(), EXCLUSIVE, _LOCK_SECONDS):
        raise TimeoutError(f"another process has locked the log for over {_LOCK_SECONDS:g} s")
