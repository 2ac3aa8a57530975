"""A labelled data set in the BEIR layout (docs/calibration.md), read one line at a time."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast, get_args

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import LineError, read_lines, read_objects, required_id, required_text
from taugate.retrieval.documents.store import MOST_FIELDS, Document, DocumentStore, DocumentWriter
from taugate.storage.files import sha256_file

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
HEADER = "query-id\tcorpus-id\tscore"  # of a file with judgements
_REMOVED = -1  # stands for documents that the corpus no longer has
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
    queries and qrels. orphaned: how many queries are left out because every document that answered them was removed.
    """

    name: str
    split: str
    documents: DocumentStore
    answerable: list[LabelledQuery]
    unanswerable: list[LabelledQuery]
    sha256: Mapping[str, str]
    orphaned: int = 0

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


def read_dataset(folder: Path, split: str, spool: Path, known: Collection[str] = ()) -> Dataset:
    """Read and check a data set.

    folder: of the data set. split: whose judgements are read. spool: an empty folder for the documents, which has to
    outlive the result. known: ids of documents that an earlier version of the corpus had; judgements of those that it
    no longer has are passed over. Raises InputError, one message with file and line, at the first fault.
    """
    if folder.is_file():
        raise InputError(
            f"{folder}: is a file, and a data set is a directory; give the directory that holds {CORPUS}, {QUERIES} "
            f"and {qrels_of(split)}" + (f", here {folder.parent}" if folder.name in {CORPUS, QUERIES} else "")
        )
    if not folder.is_dir():
        raise InputError(f"{folder}: no such directory; give the folder that holds corpus.jsonl")
    corpus, queries, qrels = folder / CORPUS, folder / QUERIES, folder / qrels_of(split)
    positions = _spool_corpus(corpus, spool)
    asked = read_queries(queries)
    grades = read_qrels(qrels, asked, positions, known)
    orphaned = _drop_orphans(grades)
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
        orphaned=orphaned,
    )


def _drop_orphans(grades: dict[str, dict[int, int]]) -> int:
    """Remove the queries that lost every document that answered them, and return how many there were.

    Nobody has said that no other document answers them, so that they are not unanswerable either.
    """
    orphans = [name for name, judged in grades.items() if _REMOVED in judged and not _answered(judged)]
    for name in orphans:
        del grades[name]
    for judged in grades.values():
        judged.pop(_REMOVED, None)
    return len(orphans)


def _answered(judged: Mapping[int, int]) -> bool:
    return any(grade >= 1 for position, grade in judged.items() if position != _REMOVED)


def read_qrels(
    path: Path, queries: Collection[str], positions: Mapping[str, int], known: Collection[str] = ()
) -> dict[str, dict[int, int]]:
    """Read the judgements of a split: document positions with their grades, by query id.

    A query listed with zero scores only is unanswerable.

    path: of the file. queries: ids of all queries. positions: of the documents, by id. known: ids that documents had
    before; a removed document that answered a query is noted at the position _REMOVED. Raises InputError or LineError.
    """
    if not path.exists() and path.parent.is_dir():
        splits = ", ".join(sorted(file.stem for file in path.parent.glob("*.tsv"))) or "none"
        raise InputError(f"{path}: no such file; --split names one of: {splits}")
    grades: dict[str, dict[int, int]] = {}
    rows = read_lines(path)
    if next(rows, (0, ""))[1] != HEADER:
        raise LineError(path, 1, "not the header of a qrels file", f"write {HEADER!r} (tabs between) as the first line")
    for line, text in rows:
        query, document, grade = _parse_judgement(path, line, text)
        if query not in queries:
            raise LineError(path, line, f"query {query!r} is not in queries.jsonl", "add it or remove this line")
        if document not in positions and document in known:
            if grade >= 1:
                grades.setdefault(query, {})[_REMOVED] = grade
            continue
        if document not in positions:
            raise LineError(path, line, f"document {document!r} is not in corpus.jsonl", "add it or remove this line")
        judged = grades.setdefault(query, {})
        if positions[document] in judged:
            raise LineError(path, line, f"{query!r} and {document!r} are judged twice", "keep one of the two lines")
        judged[positions[document]] = grade
    if not grades:
        raise InputError(f"{path}: judges no query; add lines of query-id, corpus-id and score")
    return grades


def _parse_judgement(path: Path, line: int, text: str) -> tuple[str, str, int]:
    fields = text.split("\t")
    if len(fields) != 3:
        raise LineError(path, line, f"{len(fields)} fields, not 3", "separate query-id, corpus-id and score by tabs")
    query, document, score = fields
    if not _GRADE.fullmatch(score):
        wrong = f"score {score[:20]!r} is not a whole number from 0 to 999999999"
        raise LineError(path, line, wrong, "use 0 for not relevant, 1 or more for relevant")
    return query, document, int(score)


def _spool_corpus(path: Path, spool: Path) -> dict[str, int]:
    """Copy the documents to the spool; returns their positions by id."""
    positions: dict[str, int] = {}
    fields: set[str] = set()
    writer = DocumentWriter(spool)
    try:
        for line, record in read_objects(path):
            identifier = required_id(path, line, record, positions)
            text = required_text(path, line, record, "text")
            title, metadata = _title(path, line, record), _metadata(path, line, record, fields)
            writer.append(Document(identifier, text, title, metadata, *_origin_of_chunk(path, line, record)))
    finally:
        writer.close()
    if not positions:
        raise InputError(f"{path}: holds no document; write one JSON object per line")
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
        if isinstance(value, list | dict) or (isinstance(value, float) and not math.isfinite(value)):
            raise LineError(path, line, f"metadata {name!r} is not a scalar", "use a string, number, boolean or null")
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
