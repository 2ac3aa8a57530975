"""Replaces old texts in the query log by their hashes, while all workers go on writing to it.

A copy without the old texts is made first, while others append lines to the log. Then the log is locked, the lines
that came meanwhile are copied as well, and the copy takes the log's place. A writer that waited for the lock sees that
the name belongs to another file, and opens that one.
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
    """Hash the queries and filters of lines older than so many days; returns how many lines were changed.

    One process does so at a time, and all of them together once an hour; whoever is not to do it returns 0.

    Args:
        log: The file, which need not exist; what is no plain file is left alone.
        days: The age from which texts go.
        now: Unix time in seconds.

    Raises:
        OSError: Where the folder cannot be written to, or has no locks; the log is as it was then.
    """
    log = log.resolve()
    try:
        if not stat.S_ISREG(log.stat().st_mode):
            return 0
    except FileNotFoundError:
        return 0
    turn = os.open(log.with_name(f".{log.name}.texts"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # The file is empty until somebody has had a turn, and its time is that of the last one.
        found = os.fstat(turn)
        if not acquire(turn, EXCLUSIVE) or (found.st_size and now - found.st_mtime < _EVERY_SECONDS):
            return 0
        changed = _replace(log, now - days * _DAY_SECONDS)
        os.pwrite(turn, b"\n", 0)
        os.utime(turn, (now, now))
        return changed
    finally:
        os.close(turn)


def _replace(log: Path, before: float) -> int:
    # One name for all times: what a killed process leaves, with its texts, goes at the next turn.
    copy = log.with_name(f".{log.name}.copy")
    copy.unlink(missing_ok=True)
    try:
        descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as new, log.open("r+b") as old:
            set_mode(new.fileno(), stat.S_IMODE(os.fstat(old.fileno()).st_mode))
            _lock(old)
            end = os.fstat(old.fileno()).st_size  # up to here the lines are whole, and stay
            fcntl.flock(old, fcntl.LOCK_UN)
            changed = _copy(old, new, end, before)
            if not changed:
                return 0
            _lock(old)
            come = os.fstat(old.fileno()).st_size - end
            # Moved away or cut meanwhile, as by logrotate: what is copied is no longer what the name stands for.
            if not is_at(old.fileno(), log) or come < 0:
                return 0
            new.write(os.pread(old.fileno(), come, end))  # past what `old` may have read ahead
            new.flush()
            sync(new.fileno())
            copy.replace(log)
        sync_folder(log.parent)
        return changed
    finally:
        copy.unlink(missing_ok=True)


def _copy(old: BinaryIO, new: BinaryIO, end: int, before: float) -> int:
    """Copy the lines up to `end`, without the texts of those from before a time; returns how many lost theirs."""
    changed = 0
    while line := old.readline(end - old.tell()):  # nothing comes at the end, nor where the log was cut meanwhile
        shorter = _without_text(line, before)
        changed += shorter != line
        new.write(shorter)
    return changed


def _without_text(line: bytes, before: float) -> bytes:
    """Return a line with hashes in place of texts, if it is older; a line that is of no log stays as it is."""
    with suppress(orjson.JSONDecodeError):
        record = orjson.loads(line)
        if isinstance(record, dict) and isinstance(at := record.get("at"), int | float) and at < before:
            texts: dict[str, str] = {}
            if isinstance(query := record.get("query"), str) and not is_hash(query):
                texts["query"] = hashed(query)
            if isinstance(wanted := record.get("filter"), dict):
                texts["filter"] = hashed_filter(wanted)
            if texts:
                return orjson.dumps(record | texts) + b"\n"
    return line


def _lock(file: BinaryIO) -> None:
    if not acquire(file.fileno(), EXCLUSIVE, _LOCK_SECONDS):
        raise TimeoutError(f"another process keeps the lock of the log for over {_LOCK_SECONDS:g} s")
