"""A labelled data set in the BEIR layout (docs/calibration.md), read one line at a time."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import Fault, new_id, read_lines, read_objects, required_text
from taugate.retrieval.documents.metadata import MOST_FIELDS
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter
from taugate.storage.files import sha256_file

HEADER = "query-id\tcorpus-id\tscore"
_GRADE = re.compile(r"[0-9]{1,9}")  # grades are small; what is longer is a mistake, not a number


def read_qrels(path: Path, queries: Collection[str], positions: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Judged document positions, with their grades, of every query that the split lists.

    A query listed with zero scores only is unanswerable. Raises InputError or Fault.
    """
    if not path.exists() and path.parent.is_dir():
        splits = ", ".join(sorted(file.stem for file in path.parent.glob("*.tsv"))) or "none"
        raise InputError(f"{path}: no such file; --split names one of: {splits}")
    grades: dict[str, dict[int, int]] = {}
    rows = read_lines(path)
    if next(rows, (0, ""))[1] != HEADER:
        raise Fault(path, 1, "not the header of a qrels file", f"write {HEADER!r} (tabs between) as the first line")
    for line, text in rows:
        query, document, grade = _parse(path, line, text)
        if query not in queries:
            raise Fault(path, line, f"query {query!r} is not in queries.jsonl", "add it or remove this line")
        if document not in positions:
            raise Fault(path, line, f"document {document!r} is not in corpus.jsonl", "add it or remove this line")
        judged = grades.setdefault(query, {})
        if positions[document] in judged:
            raise Fault(path, line, f"{query!r} and {document!r} are judged twice", "keep one of the two lines")
        judged[positions[document]] = grade
    if not grades:
        raise InputError(f"{path}: judges no query; add lines of query-id, corpus-id and score")
    return grades


def _parse(path: Path, line: int, text: str) -> tuple[str, str, int]:
    fields = text.split("\t")
    if len(fields) != 3:
        raise Fault(path, line, f"{len(fields)} fields, not 3", "separate query-id, corpus-id and score by tabs")
    query, document, score = fields
    if not _GRADE.fullmatch(score):
        wrong = f"score {score[:20]!r} is not a whole number from 0 to 999999999"
        raise Fault(path, line, wrong, "use 0 for not relevant, 1 or more for relevant")
    return query, document, int(score)


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
