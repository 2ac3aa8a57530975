"""The journal of one judge: a line for each key press, so that a killed process loses nothing.

A judgement is of a query's text and a document's text, whatever their ids. So it remains valid in a later sample, for
another release and after the corpus has changed, as long as both texts are the same.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import LineError, read_lines
from taugate.retrieval.documents.store import Document
from taugate.storage.files import append_lines, sync
from taugate.storage.locks import acquire_if_possible

_DIGITS = 32  # hexadecimal digits that stand for a pair of texts


def pair_of(query: str, document: Document) -> str:
    """Return hexadecimal digits that stand for a query's text and a document's: equal texts have equal digits."""
    parts = [query, document.title or "", document.text]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


class Entry(BaseModel):
    """One key press.

    Attributes:
        at: Unix time in seconds.
        round: Number of the sample.
        action: Judge a result, skip a query, or undo the last judgement or skip.
        query: Id of the query, empty if the action has none.
        document: Id of the passage, empty if the action has none.
        pair: Digits that stand for the texts of a judgement, see `pair_of`.
        relevant: The judgement; None for other actions.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    at: float
    round: int
    action: Literal["judge", "skip", "undo"]
    query: str = ""
    document: str = ""
    pair: str = ""
    relevant: bool | None = None


@dataclass
class Journal:
    """The key presses of one judge, without those that were undone.

    Attributes:
        judge: The name.
        entries: The key presses in the order of time.
    """

    judge: str
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a judge's file; a line that a killed process left unfinished is skipped.

        Args:
            path: The file, which need not exist.

        Raises:
            LineError: If a line is not a key press.
        """
        journal = cls(path.stem)
        if not path.exists():
            return journal
        for number, text in read_lines(path):
            try:
                record = orjson.loads(text)
            except orjson.JSONDecodeError:
                if '{"at":'.startswith(text[:6]):
                    continue
                record = None
            try:
                journal.add(Entry.model_validate(record))
            except ValidationError as error:
                raise LineError(path, number, "not a key press of `taugate judge`", "remove the line") from error
        return journal

    def add(self, entry: Entry) -> None:
        """Apply a key press."""
        if entry.action != "undo":
            self.entries.append(entry)
        elif self.entries:
            self.entries.pop()

    def judgements(self) -> dict[str, bool]:
        """Return, for each pair, whether it is relevant; the latest judgement counts."""
        return {entry.pair: entry.relevant for entry in self.entries if entry.relevant is not None}

    def skipped(self, number: int) -> set[str]:
        """Return the ids of the queries that the judge skipped in one sample.

        Args:
            number: Number of the sample's round.
        """
        return {entry.query for entry in self.entries if entry.action == "skip" and entry.round == number}


class OpenJournal:
    """A judge's file, locked while the judge is judging: no other process may add to it.

    Attributes:
        journal: Key presses so far.
    """

    def __init__(self, descriptor: int, journal: Journal) -> None:
        self._descriptor = descriptor
        self.journal = journal

    def append(self, entry: Entry) -> None:
        """Write a key press to the disk, then apply it.

        Raises:
            OSError: If the disk is full; then nothing changes.
        """
        # In ASCII, so that a line that is cut off anywhere is still text.
        line = json.dumps(entry.model_dump(exclude_defaults=True), separators=(",", ":"))
        append_lines(self._descriptor, f"{line}\n".encode("ascii"))
        sync(self._descriptor)
        self.journal.add(entry)


@contextmanager
def open_journal(path: Path) -> Iterator[OpenJournal]:
    """Open a judge's file, which is created if needed.

    Raises:
        InputError: If another process has the file open; LineError if a line is not a key press.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if not acquire_if_possible(descriptor, path.parent):
            raise InputError(
                f"{path}: {path.stem} is judging in another process; end it, or give another name with --judge"
            )
        yield OpenJournal(descriptor, Journal.read(path))
    finally:
        os.close(descriptor)


def now() -> float:
    """Return the Unix time in seconds, as entries have it."""
    return round(time.time(), 3)
