"""Files and folders as a source: readable files give documents, copies and others a reason."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import orjson

from taugate.data.parsed import ParsedDocument, UnreadableFile
from taugate.retrieval.documents.store import MAX_TAGS, Document, MetadataValue
from taugate_import.chunker import Chunker
from taugate_import.documents import ImportedDocument
from taugate_import.parse import IsolatedParser
from taugate_import.source_files import FileNote, Skipped, SourceFile, find_files
from taugate_import.word_share import MIN_SHARE_KEPT

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
        said = [content.key, content.title, content.text, dict(content.metadata)]
        self._digests.setdefault(path, hashlib.sha256()).update(orjson.dumps(said))
        self._ids.setdefault(path, []).append(document.id)

    def found(self) -> dict[str, list[str]]:
        """Return the paths of copies that are not imported, by the path of the file that is.

        Files with judged documents are imported. If there is none, it is a file that was imported before, else the
        first one. So an id remains as long as its file does.
        """
        groups: dict[bytes, list[str]] = {}
        for path, digest in self._digests.items():
            groups.setdefault(digest.digest(), []).append(path)
        found = {}
        for paths in groups.values():
            judged = [path for path in paths if not self._judged.isdisjoint(self._ids[path])]
            earlier = [path for path in paths if self._ids[path][0] in self._imported]
            kept = judged or [*earlier, *paths][:1]
            if copies := [path for path in paths if path not in kept]:
                found[kept[0]] = copies
        return found

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
