"""The files below what the user named: each is found, or named with the reason why it is not read."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from taugate.ingestion.importers.parse import kind_of


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    path: where it is. name: its path below its source, which becomes the document's id; what no id may hold (control
    characters, and bytes that are not UTF-8) is percent-encoded.
    """

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder that is not read.

    path: where it is; bytes that are not UTF-8 are replaced. reason: why, as the rest of a sentence about it.
    """

    path: str
    reason: str

    @classmethod
    def of(cls, path: Path | str, reason: str) -> Self:
        """Make one from a path of any bytes."""
        return cls(_shown(path), reason)


@dataclass(frozen=True, slots=True)
class FileNote:
    """What the user has to know about a file that was read.

    path: where it is; bytes that are not UTF-8 are replaced. note: the rest of a sentence about it. share: of its words
    that reached the corpus, if it is below the limit that a file is named at; None if the note is about something else.
    """

    path: str
    note: str
    share: float | None = None

    @classmethod
    def of(cls, path: Path | str, note: str, share: float | None = None) -> Self:
        """Make one from a path of any bytes."""
        return cls(_shown(path), note, share)


def _shown(path: Path | str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def find_files(source: Path, prefix: str) -> Iterator[SourceFile | Skipped]:
    """Yield the files of a source, in the order of their names.

    A link below a folder is not followed, so that nothing outside is read and no circle is walked; hidden files and
    folders are passed over.

    source: a file or folder. prefix: what each name begins with; the name of a single file needs none.
    """
    if source.is_dir():
        yield from _below(source, prefix)
    else:
        yield _classify(source.resolve(), source.resolve().name)


def _below(root: Path, prefix: str) -> Iterator[SourceFile | Skipped]:
    unreadable: list[OSError] = []
    for folder, folders, files in os.walk(root, onerror=unreadable.append):
        folders.sort()
        here = Path(folder)
        for name in [each for each in folders if each.startswith(".") or (here / each).is_symlink()]:
            folders.remove(name)  # os.walk follows no link, but lists it
            yield Skipped.of(here / name, "is hidden" if name.startswith(".") else "is a link to a folder")
        for name in sorted(files):
            path = here / name
            yield _classify(path, prefix + path.relative_to(root).as_posix())
        for error in unreadable:
            yield Skipped.of(error.filename, f"cannot be opened ({error.strerror})")
        unreadable.clear()


def _classify(path: Path, name: str) -> SourceFile | Skipped:
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        return Skipped.of(path, f"cannot be opened ({error.strerror})")
    if path.name.startswith("."):
        return Skipped.of(path, "is hidden")
    if stat.S_ISLNK(mode):
        return Skipped.of(path, "is a link to another file")
    if not stat.S_ISREG(mode):
        return Skipped.of(path, "is not a plain file")
    if kind_of(path) is None:
        return Skipped.of(path, "is of a kind that is not read; save it as text, HTML, PDF or an office file")
    return SourceFile(path, document_id(name))


def document_id(name: str) -> str:
    """Return a name as an id that can stand in one field of a tab-separated line, in UTF-8.

    name: a path, perhaps with control characters and bytes that are not UTF-8, which are percent-encoded.
    """
    if name.isprintable() and "\ufffd" not in name:
        return name
    raw = os.fsencode(name)
    return quote(raw, safe="/ !#$&'()*+,;=:@[]~")
