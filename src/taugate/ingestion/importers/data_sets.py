"""Data sets in the BEIR layout as a source: documents are imported, queries and judgements are copied."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from taugate.ingestion.dataset.corpus import CORPUS, read_lines_of_corpus
from taugate.ingestion.dataset.editing import qrels_bytes
from taugate.ingestion.dataset.judgements import (
    NO_DOCUMENT,
    CorpusIds,
    JudgementLine,
    parse_header,
    parse_judgement,
    qrels_of,
    splits_in,
)
from taugate.ingestion.dataset.lines import read_lines, read_objects, required_id, required_text, stored_file
from taugate.ingestion.dataset.queries import QUERIES
from taugate.ingestion.importers.documents import ImportedDocument
from taugate.ingestion.importers.source_files import Skipped
from taugate.ingestion.parsed import prose_document
from taugate.storage.files import atomic_write

RECORD = "import.json"  # how an imported data set was made


def is_data_set(source: Path) -> bool:
    """Return whether a source is a data set: a folder that holds corpus.jsonl.

    Raises:
        InputError: If the corpus exists both plain and packed.
    """
    return source.is_dir() and stored_file(source / CORPUS).is_file()


def documents_of_data_set(folder: Path, prefix: str) -> Iterator[ImportedDocument | Skipped]:
    """Yield the documents of a data set as they are written, then the other files in its folder.

    Args:
        folder: Folder of the data set.
        prefix: Prefix for the ids of its documents.

    Raises:
        InputError: At the first fault, as judgements may name any document; LineError if a line is invalid.
    """
    for document in read_lines_of_corpus(stored_file(folder / CORPUS), CorpusIds()):
        yield ImportedDocument(
            prefix + document.id,
            prose_document(document.text, document.title or ""),
            document.metadata,
            as_written=True,
            parent=None if document.parent is None else prefix + document.parent,
            span=document.span,
        )
    data_set_files = {CORPUS, QUERIES, "qrels", RECORD}
    for path in sorted(folder.iterdir()):
        if path.name.removesuffix(".gz") not in data_set_files and not path.name.startswith("."):
            yield Skipped.of(path, "is not one of the data set's files")


@dataclass
class SourceQueries:
    """Queries and judgements of data sets.

    Attributes:
        queries: Lines of queries.jsonl.
        judgements: Rows of the qrels, by split.
    """

    queries: list[bytes] = field(default_factory=list)
    judgements: dict[str, list[JudgementLine]] = field(default_factory=dict)

    @classmethod
    def read(cls, data_sets: Sequence[tuple[Path, str]]) -> "SourceQueries":
        """Read the queries and judgements of several data sets; a data set without queries.jsonl has none.

        Args:
            data_sets: Folders, each with the prefix for the ids of its documents and queries.

        Raises:
            InputError: At the first fault; LineError if a line is invalid.
        """
        source = cls()
        for folder, prefix in data_sets:
            queries = stored_file(folder / QUERIES)
            if not queries.is_file():
                continue
            seen: dict[str, int] = {}
            for line, record in read_objects(queries):
                identifier = prefix + required_id(queries, line, record, seen)
                required_text(queries, line, record, "text")
                if record.get("origin") == "near_miss":
                    record["source"] = prefix + required_text(queries, line, record, "source")
                source.queries.append(orjson.dumps(record | {"_id": identifier}) + b"\n")
            for split in splits_in(folder):
                source.judgements.setdefault(split, []).extend(_judgements(folder / qrels_of(split), prefix))
        return source

    def write(self, data: Path) -> None:
        """Write the files of a data set that has no queries yet; existing splits are kept as they are.

        queries.jsonl is written last, so that all its judgements exist once it does.

        Args:
            data: Folder of the data set.

        Raises:
            OSError: If a file cannot be written.
        """
        for split, lines in self.judgements.items():
            path = data / qrels_of(split)
            path.parent.mkdir(exist_ok=True)
            if not stored_file(path).exists():
                atomic_write(path, qrels_bytes(lines))
        atomic_write(data / QUERIES, b"".join(self.queries))


def _judgements(path: Path, prefix: str) -> Iterator[JudgementLine]:
    path = stored_file(path)
    rows = read_lines(path)
    weighted = parse_header(path, next(rows, (0, ""))[1])
    for line, text in rows:
        query, document, judgement = parse_judgement(path, line, text, weighted=weighted)
        yield JudgementLine(prefix + query, document if document == NO_DOCUMENT else prefix + document, judgement)
