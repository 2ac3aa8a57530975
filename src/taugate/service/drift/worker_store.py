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

from taugate.service.pipeline.record import Results, shown_bytes

_log = logging.getLogger(__name__)
FILE = "drift.sqlite"
# Of replies and of judgements that are kept: 110 replies a second for the hour that they can be judged, in some 50 MB.
# A single process has them in memory.
_MAX_ROWS, _MAX_ROWS_IN_MEMORY = 400_000, 100_000
_BUSY_SECONDS = 1.0  # other workers write for some milliseconds
_TABLES = """
    PRAGMA synchronous = OFF;  -- the file disappears with the service
    PRAGMA journal_mode = TRUNCATE;
    CREATE TABLE IF NOT EXISTS replies (id BLOB UNIQUE, release INTEGER, at REAL, shown BLOB);
    CREATE TABLE IF NOT EXISTS judgements (id BLOB UNIQUE, at REAL);
    CREATE TABLE IF NOT EXISTS states (id BLOB UNIQUE, state BLOB);
"""
Result = TypeVar("Result")


class WorkerStore:
    """The shared memory of the workers that serve a release, or of a single process; any thread may call.

    A worker whose file cannot be used, as on a full disk, continues alone in its memory.
    """

    def __init__(self, folder: Path | None, release: str, seconds: float) -> None:
        """Open the file in the folder of all workers, None for a single process.

        Args:
            folder: Folder that all workers can write to.
            release: Id of the release.
            seconds: How long a reply can be judged.
        """
        self._release, self._seconds = crc32(release.encode()), seconds
        self._turn = threading.Lock()
        self.shared = folder is not None
        try:
            self._database = _open(None if folder is None else folder / FILE)
        except (OSError, sqlite3.Error) as error:
            self._continue_alone(error)

    def remember(self, at: float, replies: Mapping[str, Results]) -> None:
        """Keep what replies showed, (n,) RESULT, by their id in hexadecimal; `at` is a Unix time in seconds."""
        release = self._release
        rows = [(bytes.fromhex(query_id), release, at, shown_bytes(shown)) for query_id, shown in replies.items()]

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

    def is_first(self, judgement: str) -> bool:
        """Return whether no worker has had this judgement before; True if the file is locked for too long."""
        insert = "INSERT INTO judgements VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET at = ?2 WHERE at < ?3"
        now = time.time()
        values = self._id(judgement), now, now - self._seconds

        def claim(database: sqlite3.Connection) -> bool:
            first = database.execute(insert, values).rowcount == 1
            self._limit(database, "judgements")
            return first

        return self._call(claim, default=True)

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
        """Return the key of a judgement or state of the release, shorter than its name."""
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
