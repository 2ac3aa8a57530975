"""Counts of passages that the encoder cannot read, so that an import can report the files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from taugate.ingestion.chunks.chunker import Chunker
from taugate.ingestion.importers.source_files import FileNote
from taugate.retrieval.documents.store import Document


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
            lines: Lines of the corpus.
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
