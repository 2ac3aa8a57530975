"""A labelled data set in the BEIR layout (docs/calibration.md), read one line at a time."""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast, get_args

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import LineError, read_lines, read_objects, required_id, required_text, stored_file
from taugate.retrieval.documents.store import MOST_FIELDS, MOST_TAGS, Document, DocumentStore, DocumentWriter
from taugate.storage.files import sha256_file

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
HEADER = "query-id\tcorpus-id\tscore"  # of a file with judgements
_GRADE = re.compile(r"[0-9]{1,9}")  # grades are small; what is longer is a mistake, not a number
# Everyday questions, each of another field: no one corpus answers them.
_OFF_TOPIC = Path(__file__).with_name("off_topic.txt")


# Who asked a query: a person, a rule that crops documents, a language model, or a user of the running service.
Origin = Literal["human", "crop", "llm", "traffic"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)


class Query(NamedTuple):
    """A query of queries.jsonl.

    text: what is asked. origin: who asked it.
    """

    text: str
    origin: Origin = "human"


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query of the split.

    id: its `_id`. text: what is asked. relevant: document positions with their grades, 1 or more; empty where the query
    is unanswerable. judged: positions of the documents that an unanswerable query was judged against, all with a score
    of 0; empty where it is answerable. origin: who asked it.
    """

    id: str
    text: str
    relevant: Mapping[int, int]
    judged: tuple[int, ...] = ()
    origin: Origin = "human"

    @classmethod
    def of(cls, identifier: str, query: Query, grades: Mapping[int, int]) -> Self:
        """Make a labelled query from the grades of every judged document, by its position."""
        relevant = {position: grade for position, grade in grades.items() if grade >= 1}
        return cls(identifier, query.text, relevant, () if relevant else tuple(grades), query.origin)


@dataclass(frozen=True)
class Dataset:
    """A corpus with the queries of one split.

    name: of the folder. split: of the qrels. documents: in the order of corpus.jsonl. answerable, unanswerable: queries
    with and without a relevant document, each in the order of queries.jsonl. sha256: of the three files, by corpus,
    queries and qrels.
    """

    name: str
    split: str
    documents: DocumentStore
    answerable: list[LabelledQuery]
    unanswerable: list[LabelledQuery]
    sha256: Mapping[str, str]

    @cached_property
    def off_topic(self) -> list[str]:
        """Questions of twenty unrelated fields, asked where the split lists no query without an answer."""
        return [] if self.unanswerable else off_topic_questions()


def off_topic_questions() -> list[str]:
    """Return the twenty questions of unrelated fields that come with Taugate."""
    return _OFF_TOPIC.read_text(encoding="utf-8").splitlines()


def qrels_of(split: str) -> str:
    """Return the path of the file with a split's judgements, relative to the data set."""
    return f"qrels/{split}.tsv"


def splits_in(folder: Path) -> list[str]:
    """Return the names of the splits of a data set, in alphabetical order. folder: of the data set."""
    files = [*folder.glob(qrels_of("*")), *folder.glob(f"{qrels_of('*')}.gz")]
    return sorted({file.name.removesuffix(".gz").removesuffix(".tsv") for file in files})


def read_dataset(folder: Path, split: str, spool: Path) -> Dataset:
    """Read and check a data set.

    folder: of the data set. split: whose judgements are read. spool: an empty folder for the documents, which has to
    outlive the result. Raises InputError, one message with file and line, at the first fault.
    """
    if folder.is_file():
        raise InputError(
            f"{folder}: is a file, and a data set is a directory; give the directory that holds {CORPUS}, {QUERIES} "
            f"and {qrels_of(split)}" + (f", here {folder.parent}" if folder.name in {CORPUS, QUERIES} else "")
        )
    if not folder.is_dir():
        raise InputError(f"{folder}: no such directory; give the folder that holds corpus.jsonl")
    corpus, queries, qrels = (stored_file(folder / name) for name in (CORPUS, QUERIES, qrels_of(split)))
    positions = _spool_corpus(corpus, spool)
    asked = read_queries(queries)
    grades = read_qrels(qrels, asked, positions)
    labelled = [LabelledQuery.of(name, query, grades[name]) for name, query in asked.items() if name in grades]
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


def read_qrels(path: Path, queries: Collection[str], positions: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Read the judgements of a split: document positions with their grades, by query id.

    A query listed with zero scores only is unanswerable.

    path: of the file. queries: ids of all queries. positions: of the documents, by id. Raises InputError or LineError.
    """
    path = stored_file(path)
    if not path.exists() and path.parent.is_dir():
        splits = ", ".join(splits_in(path.parent.parent)) or "none"
        raise InputError(f"{path}: no such file; --split names one of: {splits}")
    grades: dict[str, dict[int, int]] = {}
    rows = read_lines(path)
    if next(rows, (0, ""))[1] != HEADER:
        raise LineError(path, 1, "not the header of a qrels file", f"write {HEADER!r} (tabs between) as the first line")
    for line, text in rows:
        query, document, grade = parse_judgement(path, line, text)
        if query not in queries:
            raise LineError(path, line, f"query {query!r} is not in queries.jsonl", "add it or remove this line")
        if document not in positions:
            raise LineError(path, line, f"document {document!r} is not in corpus.jsonl", "add it or remove this line")
        judged = grades.setdefault(query, {})
        if positions[document] in judged:
            raise LineError(path, line, f"{query!r} and {document!r} are judged twice", "keep one of the two lines")
        judged[positions[document]] = grade
    if not grades:
        raise InputError(f"{path}: judges no query; add lines of query-id, corpus-id and score")
    return grades


def parse_judgement(path: Path, line: int, text: str) -> tuple[str, str, int]:
    """Return query id, document id and grade of one line of a qrels file.

    path, line: where it stands. text: the line. Raises LineError.
    """
    fields = text.split("\t")
    if len(fields) != 3:
        raise LineError(path, line, f"{len(fields)} fields, not 3", "separate query-id, corpus-id and score by tabs")
    query, document, score = fields
    if not _GRADE.fullmatch(score):
        wrong = f"score {score[:20]!r} is not a whole number from 0 to 999999999"
        raise LineError(path, line, wrong, "use 0 for not relevant, 1 or more for relevant")
    return query, document, int(score)


def read_corpus(path: Path, positions: dict[str, int]) -> Iterator[Document]:
    """Yield the documents of a corpus in the order of the file.

    path: of corpus.jsonl. positions: of the documents by id, to which each is added. Raises InputError or LineError.
    """
    fields: set[str] = set()
    for line, record in read_objects(path):
        identifier = required_id(path, line, record, positions)
        text = required_text(path, line, record, "text")
        title, metadata = _title(path, line, record), _metadata(path, line, record, fields)
        yield Document(identifier, text, title, metadata, *_origin_of_chunk(path, line, record))
    if not positions:
        raise InputError(f"{path}: holds no document; write one JSON object per line")


def _spool_corpus(path: Path, spool: Path) -> dict[str, int]:
    """Copy the documents to the spool; returns their positions by id."""
    positions: dict[str, int] = {}
    writer = DocumentWriter(spool)
    try:
        for document in read_corpus(path, positions):
            writer.append(document)
    finally:
        writer.close()
    return positions


def _title(path: Path, line: int, record: dict[str, Any]) -> str | None:
    title = record.get("title")
    if title is not None and not isinstance(title, str):
        raise LineError(path, line, '"title" is not a string', "put it in quotes or leave it out")
    return title or None


def _origin_of_chunk(path: Path, line: int, record: dict[str, Any]) -> tuple[str | None, tuple[int, int] | None]:
    """Return the parent and the span of a chunk; both None for a whole document."""
    parent, span = record.get("parent"), record.get("span")
    if parent is None:
        return None, None
    if type(parent) is int:  # as ids may be
        parent = str(parent)
    if not isinstance(parent, str) or not parent:
        raise LineError(path, line, '"parent" is not the id of a document', "put it in quotes or leave it out")
    if span is None:
        return parent, None
    if not isinstance(span, list) or len(span) != 2 or not all(type(place) is int for place in span):
        raise LineError(
            path, line, '"span" is not [start, end] in characters', "give two whole numbers or leave it out"
        )
    start, end = span
    if not 0 <= start <= end:
        raise LineError(path, line, f'"span" [{start}, {end}] ends before it starts', "correct it or leave it out")
    return parent, (start, end)


def _metadata(path: Path, line: int, record: dict[str, Any], fields: set[str]) -> dict[str, Any]:
    """Return the metadata of one record; `fields` has the fields of the records before, and its own are added."""
    metadata = record.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise LineError(path, line, '"metadata" is not an object', 'write {"field": value}')
    for name, value in metadata.items():
        if isinstance(value, list):
            if not all(isinstance(tag, str) for tag in value):
                raise LineError(path, line, f"metadata {name!r} is a list with more than strings", "put each in quotes")
            if len(value) > MOST_TAGS:
                raise LineError(
                    path, line, f"metadata {name!r} lists {len(value)} strings", f"give {MOST_TAGS} at most"
                )
        elif isinstance(value, dict) or (isinstance(value, float) and not math.isfinite(value)):
            wrong = f"metadata {name!r} is neither a scalar nor a list"
            raise LineError(path, line, wrong, "use a string, number, boolean, null or list of strings")
        if value is not None:
            fields.add(name)
    if len(fields) > MOST_FIELDS:
        raise LineError(
            path, line, f"metadata has over {MOST_FIELDS} field names so far", "put what varies into values, not names"
        )
    return metadata


def read_queries(path: Path) -> dict[str, Query]:
    """Return each query by its id, in the order of the file.

    path: of queries.jsonl. Raises InputError or LineError.
    """
    path = stored_file(path)
    seen: dict[str, int] = {}
    queries = {
        required_id(path, line, record, seen): Query(
            required_text(path, line, record, "text"), _origin(path, line, record)
        )
        for line, record in read_objects(path)
    }
    if not queries:
        raise InputError(f"{path}: holds no query; write one JSON object per line")
    return queries


def _origin(path: Path, line: int, record: dict[str, Any]) -> Origin:
    origin: Any = record.get("origin", "human")
    if origin not in ORIGINS:
        raise LineError(path, line, f'"origin" {str(origin)[:20]!r} is none of {", ".join(ORIGINS)}', "correct it")
    return cast(Origin, origin)
