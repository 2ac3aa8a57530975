"""The files below what the user named: each is found, or named with the reason why it is not read."""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from unicodedata import normalize
from urllib.parse import quote

from taugate.ingestion.importers.parse import kind_of


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Attributes:
        path: Where it is, as the user knows it.
        name: Its path below its source, which becomes the document's id (`document_id`).
        target: The plain file with its bytes, which differs from `path` if that is a link.
    """

    path: Path
    name: str
    target: Path


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder that is not read.

    Attributes:
        path: Where it is; bytes that are not UTF-8 are replaced.
        reason: Why, as the rest of a sentence about it.
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

    Attributes:
        path: Where it is; bytes that are not UTF-8 are replaced.
        note: The rest of a sentence about it.
        share: Of its words that reached the corpus, if it is below the limit that a file is named at; None if the note
            is about something else.
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
    """Yield the files of a source: plain ones in the order of their names, then those that only links lead to.

    Every file is read once. A link to a file or folder of the source is followed if it is not read under its own name,
    as in the folders that Kubernetes mounts, where NAME leads to a hidden folder. So no circle is walked. A link that
    leads out of the source is not followed. Hidden files and folders are passed over.

    Args:
        source: A file or folder.
        prefix: What each name begins with; the name of a single file needs none.
    """
    if source.is_dir():
        yield from _with_unique_names(_Tree(source).files(), source, prefix)
    else:
        path = source.resolve()
        yield from _with_unique_names([_classify(path, path)], path.parent, "")


class _Tree:
    """The files below a folder.

    Attributes:
        root: The folder, or a link to it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._inside = root.resolve()
        self._read: set[Path] = set()  # files and folders, without links
        self._links: list[Path] = []

    def files(self) -> Iterator[tuple[Path, Path] | Skipped]:
        """Yield each file with the plain file that it leads to, or why it is not read."""
        yield from self._walk(self._root)
        while self._links:
            links, self._links = sorted(self._links), []
            for link in links:
                yield from self._follow(link)

    def _follow(self, link: Path) -> Iterator[tuple[Path, Path] | Skipped]:
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
            yield Skipped.of(link, "is a link that leads nowhere")
            return
        if not target.is_relative_to(self._inside):
            yield Skipped.of(link, "is a link that leads out of the source")
        elif target in self._read:
            yield Skipped.of(link, f"is a link to {self._shown(target)}, which is read already")
        elif target.is_dir():
            yield from self._walk(link)
        else:
            self._read.add(target)
            yield _classify(link, target)

    def _walk(self, top: Path) -> Iterator[tuple[Path, Path] | Skipped]:
        """Walk a folder, or one that a link leads to; links in it are kept for later."""
        unreadable: list[OSError] = []
        for folder, folders, files in os.walk(top, onerror=unreadable.append):
            here, real = Path(folder), Path(folder).resolve()
            for error in unreadable:
                yield Skipped.of(error.filename, f"cannot be opened ({error.strerror})")
            unreadable.clear()
            if real in self._read:
                folders.clear()
                continue
            self._read.add(real)
            for name in [each for each in folders if each.startswith(".") or (here / each).is_symlink()]:
                folders.remove(name)  # os.walk lists links to folders, but does not follow them
                if name.startswith("."):
                    yield Skipped.of(here / name, "is hidden")
                else:
                    self._links.append(here / name)
            folders.sort()
            for name in sorted(files):
                if not name.startswith(".") and (here / name).is_symlink():
                    self._links.append(here / name)
                elif real / name not in self._read:
                    self._read.add(real / name)
                    yield _classify(here / name, real / name)
        for error in unreadable:
            yield Skipped.of(error.filename, f"cannot be opened ({error.strerror})")

    def _shown(self, target: Path) -> str:
        """Name a file or folder of the source in a sentence, in characters that can be printed."""
        return (
            "the source itself" if target == self._inside else document_id(target.relative_to(self._inside).as_posix())
        )


def _classify(path: Path, target: Path) -> tuple[Path, Path] | Skipped:
    """Return a file that can be read, or why it is not.

    Args:
        path: As the user knows it.
        target: Without links.
    """
    if path.name.startswith("."):
        return Skipped.of(path, "is hidden")
    try:
        mode = target.lstat().st_mode
    except OSError as error:
        return Skipped.of(path, f"cannot be opened ({error.strerror})")
    if not stat.S_ISREG(mode):
        return Skipped.of(path, "is not a plain file")
    if kind_of(path) is None:
        return Skipped.of(path, "is of a kind that is not read; save it as text, HTML, PDF or an office file")
    if kind_of(path) != kind_of(target):
        return Skipped.of(path, "is a link to a file of another kind")
    return path, target


def _with_unique_names(
    files: Iterable[tuple[Path, Path] | Skipped], root: Path, prefix: str
) -> Iterator[SourceFile | Skipped]:
    """Name files by their path below a folder, in the composed Unicode form (NFC), in which most systems write names.

    macOS hands out decomposed names, so a copy of a folder from there has the same ids. If two files differ in form
    alone, those that are not in the composed form keep their own.
    """
    listed = list(files)
    names = {file: file[0].relative_to(root).as_posix() for file in listed if not isinstance(file, Skipped)}
    composed = Counter(normalize("NFC", name) for name in names.values())
    for file in listed:
        if isinstance(file, Skipped):
            yield file
            continue
        name = normalize("NFC", names[file])
        if composed[name] > 1:
            name = names[file]
        yield SourceFile(file[0], document_id(prefix + name), file[1])


def document_id(name: str) -> str:
    """Return a name as an id that can stand in one field of a tab-separated line, in UTF-8.

    Args:
        name: A path. If it has control characters or bytes that are not UTF-8, or is nothing but spaces, it is
            percent-encoded.
    """
    if name.isprintable() and "\ufffd" not in name and name.strip():
        return name
    raw = os.fsencode(name)
    return quote(raw, safe="/!#$&'()*+,;=:@[]~" + (" " if name.strip() else ""))
