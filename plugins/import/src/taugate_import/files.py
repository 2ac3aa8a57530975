"""Files and folders as a source: readable files give documents; copies and others a reason, and none is read twice."""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self
from unicodedata import normalize
from urllib.parse import quote

import orjson

from taugate.data.parsed import ParsedDocument, UnreadableFile
from taugate.retrieval.documents.store import MAX_TAGS, Document, MetadataValue
from taugate_import.chunker import Chunker, ImportedDocument
from taugate_import.parse import IsolatedParser, kind_of
from taugate_import.word_share import MIN_SHARE_KEPT


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


ALSO = "also"
"""Metadata field with the paths of the copies."""

_LISTED = 5  # numbers of a file that a note lists


class Copies:
    """Finds files whose documents have the same titles, texts and metadata, except path and day of the last change."""

    def __init__(self, imported: Collection[str], judged: Set[str]) -> None:
        self._imported = imported
        self._judged = judged | {name.rpartition("#")[0].rstrip("#") for name in judged}
        self._digests: dict[str, hashlib._Hash] = {}
        self._ids: dict[str, list[str]] = {}

    def add(self, path: str, document: ImportedDocument) -> None:
        """Add a document of a file."""
        content = document.content
        parts = [content.key, content.title, content.text, dict(content.metadata)]
        self._digests.setdefault(path, hashlib.sha256()).update(orjson.dumps(parts))
        self._ids.setdefault(path, []).append(document.id)

    def found(self) -> dict[str, list[str]]:
        """Return the paths of copies that are not imported, by the path of the file that is.

        Files with judged documents are imported. If there is none, it is a file that was imported before, else the
        first one. So an id remains as long as its file does.
        """
        groups: dict[bytes, list[str]] = {}
        for path, digest in self._digests.items():
            groups.setdefault(digest.digest(), []).append(path)
        copies_of = {}
        for paths in groups.values():
            judged = [path for path in paths if not self._judged.isdisjoint(self._ids[path])]
            earlier = [path for path in paths if self._ids[path][0] in self._imported]
            kept = judged or [*earlier, *paths][:1]
            if copies := [path for path in paths if path not in kept]:
                copies_of[kept[0]] = copies
        return copies_of

    def corpus(self, lines: BinaryIO, found: Mapping[str, list[str]]) -> Iterator[tuple[str, bytes]]:
        """Yield each line of the corpus with the id of its document, without those of copies."""
        also = {name: copies[:MAX_TAGS] for path, copies in found.items() for name in self._ids[path]}
        left_out = {name for copies in found.values() for path in copies for name in self._ids[path]}
        for line in lines:
            record = orjson.loads(line)
            name = record.get("parent") or record["_id"]
            if name in also:
                record["metadata"][ALSO] = also[name]
                yield name, orjson.dumps(record) + b"\n"
            elif name not in left_out:
                yield name, line


@dataclass(slots=True)
class _Counts:
    """Number of passages of one file, and of those that the encoder cannot read."""

    passages: int = 0
    unreadable: int = 0


class UnreadFiles:
    """Counts passages by file.

    Attributes:
        chunker: Chunker with the tokenizer of the encoder; None if documents are left whole and the encoder is unknown.
    """

    def __init__(self, chunker: Chunker | None) -> None:
        self._chunker = chunker
        self._files: dict[str, _Counts] = {}

    def add(self, path: str, lines: Iterable[bytes]) -> None:
        """Count the passages of a document.

        Args:
            path: Path of its file, or the id of a document without a file.
        """
        if self._chunker is None:
            return
        texts = [_encoded_text(line) for line in lines]
        counts = self._files.setdefault(path, _Counts())
        counts.passages += len(texts)
        counts.unreadable += self._chunker.count_unreadable(texts)

    @property
    def files(self) -> int:
        """Number of files with passages."""
        return len(self._files)

    def notes(self) -> Iterator[FileNote]:
        """Yield a note on each file with passages that the encoder cannot read."""
        for path, counts in self._files.items():
            if counts.unreadable == counts.passages:
                yield FileNote.of(path, "cannot be read by the encoder: most of its words are unknown tokens")
            elif counts.unreadable:
                yield FileNote.of(
                    path,
                    f"has {counts.unreadable:,} of {counts.passages:,} passages that the encoder cannot read: most of "
                    "their words are unknown tokens",
                )


def _encoded_text(line: bytes) -> str:
    record = orjson.loads(line)
    return Document(record["_id"], record["text"], record["title"] or None).encoded_text


def documents_of_files(
    sources: Sequence[tuple[Path, str]], progress: Callable[[str], object]
) -> Iterator[ImportedDocument | Skipped | FileNote]:
    """Yield the documents of each file with notes for the user, or the reason why the file is not read.

    Args:
        sources: Files and folders, each with the prefix for the ids of its documents.
        progress: Called with each file's name before it is read.
    """
    with IsolatedParser() as parser:
        for source, prefix in sources:
            for file in find_files(source, prefix):
                if isinstance(file, Skipped):
                    yield file
                    continue
                progress(file.name)
                try:
                    yield from _documents(parser, file)
                except UnreadableFile as error:
                    yield Skipped.of(file.path, str(error))
                except OSError as error:
                    yield Skipped.of(file.path, f"cannot be opened ({error.strerror})")


def _documents(parser: IsolatedParser, file: SourceFile) -> Iterator[ImportedDocument | FileNote]:
    content = parser.read(file.target)
    modified = _day_modified(file.target)
    status = file.target.stat()
    changed_at = max(status.st_mtime, status.st_ctime)
    for document in content.documents:
        yield replace(_imported(document, file.name, modified), changed_at=changed_at)
    if content.share < MIN_SHARE_KEPT:
        # rounded down, so that a reported share is always below the limit
        yield FileNote.of(file.path, f"keeps {int(100 * content.share)} % of its words", content.share)
    if numbers := content.lost_numbers:
        more = f" and {len(numbers) - _LISTED:,} more" if len(numbers) > _LISTED else ""
        yield FileNote.of(file.path, f"lacks {', '.join(numbers[:_LISTED])}{more}", numbers=numbers)
    for note in content.notes:
        yield FileNote.of(file.path, note)


def _day_modified(path: Path) -> dict[str, MetadataValue]:
    """Return the day of a file's last change; empty if the calendar has no such day, as for damaged archives."""
    try:
        return {"modified": datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()}
    except (OverflowError, ValueError):
        return {}


def _imported(document: ParsedDocument, name: str, modified: Mapping[str, MetadataValue]) -> ImportedDocument:
    metadata: dict[str, MetadataValue] = {**modified, **document.metadata, "path": name}
    if document.title:
        metadata["title"] = document.title
    return ImportedDocument(f"{name}/{document.key}" if document.key else name, document, metadata)
