"""Files and folders as a source: readable files give documents, others a reason."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from taugate.ingestion.importers.documents import ImportedDocument
from taugate.ingestion.importers.parse import IsolatedParser
from taugate.ingestion.importers.source_files import FileNote, Skipped, SourceFile, find_files
from taugate.ingestion.importers.word_share import MIN_SHARE_KEPT
from taugate.ingestion.parsed import ParsedDocument, UnreadableFile
from taugate.retrieval.documents.store import MetadataValue

_LISTED = 5  # numbers of a file that a note lists


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
