"""A cache in an SQLite file, which survives kill -9 and two processes at once, and never ends the work that uses it."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path


class SqliteCache:
    """Rows by key in one table. After a failure, the cache is as good as empty.

    Attributes:
        failure: Why the cache cannot be used; None if it can.

    Args:
        columns: Its columns after the key, with their types.
    """

    def __init__(self, path: Path, table: str, **columns: str) -> None:
        self.failure: str | None = None
        self._database: sqlite3.Connection | None = None
        self._select = f"SELECT {', '.join(columns)} FROM {table} WHERE key = ?"  # noqa: S608 (names in the code)
        self._insert = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * (1 + len(columns)))})"  # noqa: S608
        declared = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=30)
            self._database.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (key BLOB PRIMARY KEY, {declared}) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            self._give_up(f"{path}: {error}")

    def row(self, key: bytes) -> tuple[object, ...] | None:
        """Return the row of a key, without the key; None if it is not in the cache."""
        try:
            if self._database is not None:
                row: tuple[object, ...] | None = self._database.execute(self._select, (key,)).fetchone()
                return row
        except sqlite3.Error as error:
            self._give_up(str(error))
        return None

    def add(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Add rows, each with its key first, in one transaction."""
        try:
            if self._database is not None:
                with self._database:
                    self._database.executemany(self._insert, rows)
        except sqlite3.Error as error:
            self._give_up(str(error))

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()

    def _give_up(self, failure: str) -> None:
        self._database, self.failure = None, failure
