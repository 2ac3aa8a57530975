"""Files and folders as a source: each file that can be read gives its documents, each other one its reason."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from taugate.ingestion.importers.documents import ImportedDocument
from taugate.ingestion.importers.parse import IsolatedParser
from taugate.ingestion.importers.source_files import Skipped, SourceFile, find_files
from taugate.ingestion.parsed import UnreadableFile
from taugate.retrieval.documents.store import MetadataValue


def documents_of_files(
    sources: Sequence[tuple[Path, str]], progress: Callable[[str], object]
) -> Iterator[ImportedDocument | Skipped]:
    """Yield the documents of each file, or why it is not read.

    sources: files and folders, each with what the ids of its documents begin with. progress: called with each file's
    name before it is read.
    """
    with IsolatedParser() as parser:
        for source, prefix in sources:
            for found in find_files(source, prefix):
                if isinstance(found, Skipped):
                    yield found
                    continue
                progress(found.name)
                try:
                    yield from _documents(parser, found)
                except UnreadableFile as error:
                    yield Skipped.of(found.path, str(error))
                except OSError as error:
                    yield Skipped.of(found.path, f"cannot be opened ({error.strerror})")


def _documents(parser: IsolatedParser, file: SourceFile) -> list[ImportedDocument]:
    documents = parser.parse(file.path)
    modified = datetime.fromtimestamp(file.path.stat().st_mtime, UTC).date().isoformat()
    imported = []
    for document in documents:
        metadata: dict[str, MetadataValue] = {"modified": modified} | dict(document.metadata) | {"path": file.name}
        if document.title:
            metadata["title"] = document.title
        imported.append(
            ImportedDocument(f"{file.name}/{document.key}" if document.key else file.name, document, metadata)
        )
    return imported
