"""A data set in the BEIR layout as a source: its documents are imported, its queries and judgements come along."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from taugate.ingestion.dataset.beir import CORPUS, QUERIES, read_lines_of_corpus
from taugate.ingestion.dataset.editing import qrels_bytes
from taugate.ingestion.dataset.judgements import (
    CorpusIds,
    JudgementLine,
    parse_header,
    parse_judgement,
    qrels_of,
    splits_in,
)
from taugate.ingestion.dataset.lines import read_lines, read_objects, required_id, required_text, stored_file
from taugate.ingestion.importers.documents import ImportedDocument
from taugate.ingestion.importers.source_files import Skipped
from taugate.ingestion.parsed import prose_document
from taugate.storage.files import atomic_write

RECORD = "import.json"  # how a data set that was imported was made


def is_data_set(source: Path) -> bool:
    """Tell whether a source is a data set: a folder that holds corpus.jsonl.

    Raises:
        InputError: Where it holds two.
    """
    return source.is_dir() and stored_file(source / CORPUS).is_file()


def documents_of_data_set(folder: Path, prefix: str) -> Iterator[ImportedDocument | Skipped]:
    """Yield the documents of a data set as they are written there, then what else is in its folder.

    Args:
        folder: Of the data set.
        prefix: What their ids begin with.

    Raises:
        InputError: At the first fault: a document that were left out would leave judgements of nothing.
        LineError: At the first fault: a document that were left out would leave judgements of nothing.
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
    own = {CORPUS, QUERIES, "qrels", RECORD}
    for path in sorted(folder.iterdir()):
        if path.name.removesuffix(".gz") not in own and not path.name.startswith("."):
            yield Skipped.of(path, "is not one of the data set's files")


@dataclass
class Labels:
    """Queries and judgements of data sets.

    Attributes:
        queries: Lines of queries.jsonl.
        judgements: Of each split.
    """

    queries: list[bytes] = field(default_factory=list)
    judgements: dict[str, list[JudgementLine]] = field(default_factory=dict)

    @classmethod
    def read(cls, data_sets: Sequence[tuple[Path, str]]) -> "Labels":
        """Read those of several data sets; one without queries.jsonl has none.

        Args:
            data_sets: Folders, each with what the ids of its documents and queries begin with.

        Raises:
            InputError: At the first fault.
            LineError: At the first fault.
        """
        labels = cls()
        for folder, prefix in data_sets:
            queries = stored_file(folder / QUERIES)
            if not queries.is_file():
                continue
            seen: dict[str, int] = {}
            for line, record in read_objects(queries):
                identifier = prefix + required_id(queries, line, record, seen)
                required_text(queries, line, record, "text")
                labels.queries.append(orjson.dumps(record | {"_id": identifier}) + b"\n")
            for split in splits_in(folder):
                labels.judgements.setdefault(split, []).extend(_judgements(folder / qrels_of(split), prefix))
        return labels

    def write(self, data: Path) -> None:
        """Write the files of a data set that has no queries yet; a split that is there stays as it is.

        Queries.jsonl comes last, so that one that is there has all its judgements.

        Args:
            data: Folder of the data set.

        Raises:
            OSError: .
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
        yield JudgementLine(prefix + query, prefix + document, judgement)
