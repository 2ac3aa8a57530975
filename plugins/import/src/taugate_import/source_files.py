"""Files below the sources named by the user: each is listed, or reported with the reason why it is not read."""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from unicodedata import normalize
from urllib.parse import quote

from taugate_import.parse import kind_of


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Attributes:
        target: Regular file with its bytes, which differs from `path` if that is a link.
    """

    path: Path
    name: str
    target: Path


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder that is not read.

    Attributes:
        path: Path as the user knows it; bytes that are not UTF-8 are replaced.
    """

    path: str
    reason: str

    @classmethod
    def of(cls, path: Path | str, reason: str) -> Self:
        """Return one for a path of any bytes."""
        return cls(_shown(path), reason)


@dataclass(frozen=True, slots=True)
class FileNote:
    """A note for the user about a file that was read.

    Attributes:
        path: Path as the user knows it; bytes that are not UTF-8 are replaced.
        share: Share of its words that reached the corpus if it is below the limit for a note, 0…1; None if the note is
            about something else.
        numbers: Words with a digit that the file shows and the corpus lacks; empty if the note is about something else.
    """

    path: str
    note: str
    share: float | None = None
    numbers: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path | str, note: str, share: float | None = None, numbers: tuple[str, ...] = ()) -> Self:
        """Return one for a path of any bytes."""
        return cls(_shown(path), note, share, numbers)


def _shown(path: Path | str) -> str:
    """Return the name of a file or folder of the source for a sentence, in printable characters."""
    return os.fsencode(path).decode("utf-8", "replace")


def find_files(source: Path, prefix: str) -> Iterator[SourceFile | Skipped]:
    """Yield the files of a source: regular ones in the order of their names, then those that only links lead to.

    Every file is read once. A link to a file or folder within the source is followed unless the target is read under
    its own name, as in the folders that Kubernetes mounts, where NAME leads to a hidden folder. So cycles of links end.
    A link that leads out of the source is not followed. Hidden files and folders are skipped.
    """
    if source.is_dir():
        yield from _with_unique_names(_Tree(source).files(), source, prefix)
    else:
        path = source.resolve()
        yield from _with_unique_names([_classify(path, path)], path.parent, "")


class _Tree:
    """The files below a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._inside = root.resolve()
        self._read: set[Path] = set()  # files and folders, without links
        self._links: list[Path] = []

    def files(self) -> Iterator[tuple[Path, Path] | Skipped]:
        """Yield each file with the regular file that it leads to, or the reason why it is not read."""
        yield from self._files_in(self._root)
        while self._links:
            links, self._links = sorted(self._links), []
            for link in links:
                yield from self._follow(link)

    def _follow(self, link: Path) -> Iterator[tuple[Path, Path] | Skipped]:
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: a cycle of links, before Python 3.13
            yield Skipped.of(link, "is a link that leads nowhere")
            return
        if not target.is_relative_to(self._inside):
            yield Skipped.of(link, "is a link that leads out of the source")
        elif target in self._read:
            yield Skipped.of(link, f"is a link to {self._shown(target)}, which has already been read")
        elif target.is_dir():
            yield from self._files_in(link)
        else:
            self._read.add(target)
            yield _classify(link, target)

    def _files_in(self, top: Path) -> Iterator[tuple[Path, Path] | Skipped]:
        """Yield the files below a folder, or below the target of a link; links in it are kept for later."""
        unreadable: list[OSError] = []
        for folder, folders, files in os.walk(top, onerror=unreadable.append):
            path, real = Path(folder), Path(folder).resolve()
            for error in unreadable:
                yield Skipped.of(error.filename, f"cannot be opened ({error.strerror})")
            unreadable.clear()
            if real in self._read:
                folders.clear()
                continue
            self._read.add(real)
            for name in [name for name in folders if name.startswith(".") or (path / name).is_symlink()]:
                folders.remove(name)  # os.walk lists links to folders, but does not follow them
                if name.startswith("."):
                    yield Skipped.of(path / name, "is hidden")
                else:
                    self._links.append(path / name)
            folders.sort()
            for name in sorted(files):
                if not name.startswith(".") and (path / name).is_symlink():
                    self._links.append(path / name)
                elif real / name not in self._read:
                    self._read.add(real / name)
                    yield _classify(path / name, real / name)
        for error in unreadable:
            yield Skipped.of(error.filename, f"cannot be opened ({error.strerror})")

    def _shown(self, target: Path) -> str:
        """Name a file or folder of the source in a sentence, in characters that can be printed."""
        return (
            "the source itself" if target == self._inside else document_id(target.relative_to(self._inside).as_posix())
        )


def _classify(path: Path, target: Path) -> tuple[Path, Path] | Skipped:
    """Return a file that can be read, or the reason why it cannot."""
    if path.name.startswith("."):
        return Skipped.of(path, "is hidden")
    try:
        mode = target.lstat().st_mode
    except OSError as error:
        return Skipped.of(path, f"cannot be opened ({error.strerror})")
    if not stat.S_ISREG(mode):
        return Skipped.of(path, "is not a regular file")
    if kind_of(path) is None:
        remedy = "save it as text, HTML, PDF or an office file, or install a plug-in"
        return Skipped.of(path, f"is of a kind that is not read; {remedy}")
    if kind_of(path) != kind_of(target):
        return Skipped.of(path, "is a link to a file of another kind")
    return path, target


def _with_unique_names(
    files: Iterable[tuple[Path, Path] | Skipped], root: Path, prefix: str
) -> Iterator[SourceFile | Skipped]:
    """Name files by their path below a folder, in the composed Unicode form (NFC), in which most systems write names.

    macOS returns decomposed names, so a copy of a folder from there has the same ids. If two files differ in form
    alone, those that are not in the composed form keep their own names.
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
    """Return a name as an id that fits in one field of a tab-separated line, in UTF-8.

    Args:
        name: A path. If it has control characters or bytes that are not UTF-8, or consists of spaces, it is
            percent-encoded.
    """
    if name.isprintable() and "\ufffd" not in name and name.strip():
        return name
    raw = os.fsencode(name)
    return quote(raw, safe="/!#$&'()*+,;=:@[]~" + (" " if name.strip() else ""))
