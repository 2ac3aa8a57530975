"""What the workers of a service share: recent replies, their judgements, and the state of the alarms, in SQLite.

Replicas share the same through Redis (`Fleet`, which has the same methods).
"""

import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from zlib import crc32

_log = logging.getLogger(__name__)
FILE = "drift.sqlite"
# Of replies and of counts that are kept: 110 replies a second for the hour that they can be judged, in some 50 MB.
# A single process has them in memory.
_MAX_ROWS, _MAX_ROWS_IN_MEMORY = 400_000, 100_000
_BUSY_SECONDS = 1.0  # other workers write for some milliseconds
_TABLES = """
    PRAGMA synchronous = OFF;  -- the file disappears with the service
    PRAGMA journal_mode = TRUNCATE;
    CREATE TABLE IF NOT EXISTS replies (id BLOB UNIQUE, release INTEGER, at REAL, shown BLOB);
    CREATE TABLE IF NOT EXISTS counts (id BLOB UNIQUE, at REAL, count INTEGER);
    CREATE TABLE IF NOT EXISTS states (id BLOB UNIQUE, state BLOB);
"""
Result = TypeVar("Result")


class WorkerStore:
    """The shared memory of the workers that serve a release, or of a single process; any thread may call.

    A worker whose file cannot be used, as on a full disk, continues alone in its memory.
    """

    def __init__(self, folder: Path | None, release: str, seconds: float) -> None:
        """Open the file in the folder of all workers, None for a single process."""
        self._release, self._seconds = crc32(release.encode()), seconds
        self._turn = threading.Lock()
        self.shared = folder is not None
        try:
            self._database = _open(None if folder is None else folder / FILE)
        except (OSError, sqlite3.Error) as error:
            self._continue_alone(error)

    def remember(self, at: float, replies: Mapping[str, bytes]) -> None:
        """Keep what replies showed, by their id in hexadecimal; `at` is a Unix time in seconds."""
        release = self._release
        rows = [(bytes.fromhex(query_id), release, at, shown) for query_id, shown in replies.items()]

        def add(database: sqlite3.Connection) -> None:
            database.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", rows)
            self._limit(database, "replies")

        self._call(add, default=None)

    def find(self, query_id: str, now: float) -> bytes | None:
        """Return what a reply showed, None if its id is unknown or it is too old at `now`, a Unix time in seconds."""
        select = "SELECT shown FROM replies WHERE id = ? AND release = ? AND at >= ?"
        values = bytes.fromhex(query_id), self._release, now - self._seconds
        row = self._call(lambda database: database.execute(select, values).fetchone(), default=None)
        return None if row is None else row[0]

    def count(self, name: str) -> int:
        """Count an event, and return how often it was counted by any worker; 1 if the file is locked for too long."""
        add = (
            "INSERT INTO counts VALUES (?1, ?2, 1) ON CONFLICT (id) DO UPDATE SET "
            "count = iif(at < ?3, 1, count + 1), at = iif(at < ?3, ?2, at) RETURNING count"
        )
        now = time.time()
        values = self._id(name), now, now - self._seconds

        def counted(database: sqlite3.Connection) -> int:
            (count,) = database.execute(add, values).fetchone()
            self._limit(database, "counts")
            return int(count)

        return self._call(counted, default=1)

    def change(self, kind: str, work: Callable[[bytes | None], bytes | None]) -> bool:
        """Replace the value that workers share under a kind; see Fleet.change."""

        def replace(database: sqlite3.Connection) -> bool:
            row = database.execute("SELECT state FROM states WHERE id = ?", (self._id(kind),)).fetchone()
            if (state := work(None if row is None else row[0])) is not None:
                database.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (self._id(kind), state))
            return self.shared

        return self._call(replace, default=False)

    def drop(self, kind: str) -> None:
        """Delete the value that workers share under a kind; workers that still serve the release write it again."""
        delete = "DELETE FROM states WHERE id = ?"
        self._call(lambda database: database.execute(delete, (self._id(kind),)), default=None)

    def close(self) -> None:
        """Close the file; later calls have no effect."""
        with self._turn:
            self.shared = False
            self._database.close()

    def _id(self, name: str) -> bytes:
        """Return the key of a count or state of the release, shorter than its name."""
        return hashlib.blake2b(f"{self._release}:{name}".encode(), digest_size=16).digest()

    def _limit(self, database: sqlite3.Connection, table: str) -> None:
        """Delete the oldest rows beyond the limit."""
        limit = _MAX_ROWS if self.shared else _MAX_ROWS_IN_MEMORY
        database.execute(f"DELETE FROM {table} WHERE rowid <= (SELECT max(rowid) FROM {table}) - ?", (limit,))  # noqa: S608

    def _call(self, work: Callable[[sqlite3.Connection], Result], default: Result) -> Result:
        """Return the result of a transaction, or the default if another worker holds the file for too long."""
        with self._turn:
            try:
                return self._transact(work)
            except sqlite3.Error as error:
                if not self.shared or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                    return default
                self._continue_alone(error)
            return self._transact(work)

    def _transact(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            return work(database)

    def _continue_alone(self, error: Exception) -> None:
        _log.warning("cannot share feedback with other workers", extra={"fields": {"reason": str(error)}})
        self.shared = False
        self._database = _open(None)


def _open(path: Path | None) -> sqlite3.Connection:
    """Open the database at a path that only this user may read, or in memory."""
    if path is not None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    with closing(database.executescript(_TABLES)):
        return database
