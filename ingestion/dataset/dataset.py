"""A labelled data set in the BEIR layout (docs/calibration.md), read one line at a time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import Fault, new_id, read_objects, required_text
from taugate.ingestion.dataset.qrels import read_qrels
from taugate.retrieval.documents.metadata import MOST_FIELDS
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter
from taugate.storage.digest import sha256_file

# Everyday questions, each of another field: no one corpus answers them.
_OFF_TOPIC = Path(__file__).with_name("off_topic.txt")
CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query of the split.

    relevant: document positions with their grades, 1 or more; empty when the query is unanswerable. judged: positions
    of the documents that an unanswerable query was judged against, all with a score of 0; empty when it is answerable.
    """

    id: str
    text: str
    relevant: Mapping[int, int]
    judged: tuple[int, ...] = ()

    @classmethod
    def of(cls, identifier: str, text: str, grades: Mapping[int, int]) -> Self:
        """grades: of every judged document, by its position."""
        relevant = {position: grade for position, grade in grades.items() if grade >= 1}
        return cls(identifier, text, relevant, () if relevant else tuple(grades))


@dataclass(frozen=True)
class Dataset:
    """A corpus with the queries of one split, in the order of queries.jsonl."""

    name: str
    split: str
    documents: DocumentStore
    answerable: list[LabelledQuery]
    unanswerable: list[LabelledQuery]
    sha256: Mapping[str, str]

    @cached_property
    def off_topic(self) -> list[str]:
        """Questions of twenty unrelated fields, asked where the split lists no query without an answer."""
        return [] if self.unanswerable else _OFF_TOPIC.read_text(encoding="utf-8").splitlines()


def qrels_of(split: str) -> str:
    """Name of the file with a split's judgements."""
    return f"qrels/{split}.tsv"


def read_dataset(folder: Path, split: str, spool: Path) -> Dataset:
    """Read and check a data set; documents go to `spool`, an empty folder that must outlive the result.

    Raises InputError, one message with file and line, at the first fault.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such directory; give the folder that holds corpus.jsonl")
    corpus, queries, qrels = folder / CORPUS, folder / QUERIES, folder / qrels_of(split)
    positions = _spool_corpus(corpus, spool)
    texts = _read_queries(queries)
    grades = read_qrels(qrels, texts, positions)
    labelled = [LabelledQuery.of(name, text, grades[name]) for name, text in texts.items() if name in grades]
    answerable = [query for query in labelled if query.relevant]
    if not answerable:
        raise InputError(f"{qrels}: no query has a document with score 1 or more; label some before calibrating")
    return Dataset(
        name=folder.resolve().name,
        split=split,
        documents=DocumentStore(spool),
        answerable=answerable,
        unanswerable=[query for query in labelled if not query.relevant],
        sha256={"corpus": sha256_file(corpus), "queries": sha256_file(queries), "qrels": sha256_file(qrels)},
    )


def _spool_corpus(path: Path, spool: Path) -> dict[str, int]:
    """Copy the documents to the spool; returns the position of each id."""
    positions: dict[str, int] = {}
    fields: set[str] = set()
    writer = DocumentWriter(spool)
    try:
        for line, record in read_objects(path):
            identifier = new_id(path, line, record, positions)
            text = required_text(path, line, record, "text")
            writer.append(Document(identifier, text, _title(path, line, record), _metadata(path, line, record, fields)))
    finally:
        writer.close()
    if not positions:
        raise InputError(f"{path}: holds no document; write one JSON object a line")
    return positions


def _title(path: Path, line: int, record: dict[str, Any]) -> str | None:
    title = record.get("title")
    if title is not None and not isinstance(title, str):
        raise Fault(path, line, '"title" is not a string', "put it in quotes or leave it out")
    return title or None


def _metadata(path: Path, line: int, record: dict[str, Any], fields: set[str]) -> dict[str, Any]:
    """Metadata of one record; `fields` are those of the records before, and gain its own."""
    metadata = record.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise Fault(path, line, '"metadata" is not an object', 'write {"field": value}')
    for name, value in metadata.items():
        if isinstance(value, list | dict) or (isinstance(value, float) and not math.isfinite(value)):
            raise Fault(path, line, f"metadata {name!r} is not a scalar", "use a string, number, boolean or null")
        if value is not None:
            fields.add(name)
    if len(fields) > MOST_FIELDS:
        raise Fault(
            path, line, f"metadata has over {MOST_FIELDS} fields so far", "put what varies into values, not names"
        )
    return metadata


def _read_queries(path: Path) -> dict[str, str]:
    """Text of each query id, in file order."""
    seen: dict[str, int] = {}
    texts = {
        new_id(path, line, record, seen): required_text(path, line, record, "text")
        for line, record in read_objects(path)
    }
    if not texts:
        raise InputError(f"{path}: holds no query; write one JSON object a line")
    return texts
