"""A labelled data set in the BEIR layout (docs/calibration.md), read one line at a time."""

import math
import re
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import LineError, read_lines, read_objects, required_id, required_text, stored_file
from taugate.retrieval.documents.store import MOST_FIELDS, MOST_TAGS, Document, DocumentStore, DocumentWriter
from taugate.storage.files import sha256_file

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
TEST, HUMAN, GENERATED = "test", "human", "generated"  # splits with a meaning
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

    id: its `_id`. text: what is asked. relevant: positions of the relevant passages with their grades, 1 or more; empty
    where the query is unanswerable. A document that the qrels name as a whole has all of its chunks here. judged:
    positions of the passages that an unanswerable query was judged against, all with a score of 0; empty where it is
    answerable. origin: who asked it. documents: for each chunk in `relevant` or `judged`, the position of the first
    chunk of its document; whole documents are left out. named: those documents that the qrels name as a whole.
    """

    id: str
    text: str
    relevant: Mapping[int, int]
    judged: tuple[int, ...] = ()
    origin: Origin = "human"
    documents: Mapping[int, int] = field(default_factory=dict)
    named: frozenset[int] = frozenset()

    def grades(self, ranking: Sequence[int]) -> list[int]:
        """Return the grade of each passage of a ranking, 0 where it is not relevant.

        Of a document that the qrels name as a whole, the best chunk is the hit: the first in the ranking has the grade
        of the document, and its other chunks have 0, as one document is found only once.

        ranking: positions, best first.
        """
        if not self.named:
            return [self.relevant.get(position, 0) for position in ranking]
        found: set[int] = set()
        grades = []
        for position in ranking:
            answer = self.answer(position)
            grades.append(0 if answer in found else self.relevant.get(position, 0))
            found.add(answer)
        return grades

    def answers(self) -> dict[int, int]:
        """Return the grade of each answer: of each document named as a whole, and of each other relevant passage."""
        return {self.answer(position): grade for position, grade in self.relevant.items()}

    def answer(self, position: int) -> int:
        """Return what a passage stands for: the first chunk of a document that is named as a whole, else itself."""
        document = self.documents.get(position, position)
        return document if document in self.named else position

    def about(self) -> set[int]:
        """Return the documents that the query is about: the relevant ones, else those that it was judged against."""
        return {self.documents.get(position, position) for position in self.relevant or self.judged}


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
    passages = _spool_corpus(corpus, spool)
    asked = read_queries(queries)
    judgements = read_qrels(qrels, asked, passages)
    labelled = [passages.label(name, query, judgements[name]) for name, query in asked.items() if name in judgements]
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


@dataclass
class PassageIds:
    """The ids of a corpus, as qrels name them: a passage by its `_id`, a whole document by the `parent` of its chunks.

    positions: of each passage, by id. chunks: positions of the chunks of each document, by the document's id.
    documents: position of the first chunk of its document, by the position of each chunk.
    """

    positions: dict[str, int] = field(default_factory=dict)
    chunks: dict[str, list[int]] = field(default_factory=dict)
    documents: dict[int, int] = field(default_factory=dict)

    def add(self, position: int, parent: str | None) -> None:
        """Add a chunk to its document; position: of the chunk. parent: id of the document, None for a whole one."""
        if parent is not None:
            siblings = self.chunks.setdefault(parent, [])
            siblings.append(position)
            self.documents[position] = siblings[0]

    def __contains__(self, identifier: object) -> bool:
        return identifier in self.positions or identifier in self.chunks

    def label(self, name: str, query: Query, judgements: Mapping[str, int]) -> LabelledQuery:
        """Make a labelled query.

        An id that a passage has means that passage, also where it is the id of a parent. Where a document and some of
        its chunks are judged, the highest of their grades is the document's.

        name: id of the query. query: its text and origin. judgements: grades by the ids of the qrels, all known.
        """
        named = {self.chunks[each][0]: self.chunks[each] for each in judgements if each not in self.positions}
        grades: dict[int, int] = {}
        for identifier, grade in judgements.items():
            position = self.positions.get(identifier)
            if position is None:
                meant = self.chunks[identifier]
            else:
                meant = named.get(self.documents.get(position, position), [position])
            for each in meant:
                grades[each] = max(grade, grades.get(each, 0))
        relevant = {position: grade for position, grade in grades.items() if grade >= 1}
        judged = () if relevant else tuple(grades)
        documents = {each: self.documents[each] for each in relevant or judged if each in self.documents}
        return LabelledQuery(name, query.text, relevant, judged, query.origin, documents, frozenset(named))


def read_qrels(path: Path, queries: Collection[str], passages: Container[str]) -> dict[str, dict[str, int]]:
    """Read the judgements of a split: grades by the id of a passage or document, by query id.

    A query listed with zero scores only is unanswerable.

    path: of the file. queries: ids of all queries. passages: ids that may be judged. Raises InputError or LineError.
    """
    path = stored_file(path)
    if not path.exists() and path.parent.is_dir():
        splits = ", ".join(splits_in(path.parent.parent)) or "none"
        raise InputError(f"{path}: no such file; --split names one of: {splits}")
    judgements: dict[str, dict[str, int]] = {}
    rows = read_lines(path)
    if next(rows, (0, ""))[1] != HEADER:
        raise LineError(path, 1, "not the header of a qrels file", f"write {HEADER!r} (tabs between) as the first line")
    for line, text in rows:
        query, document, grade = _parse_judgement(path, line, text)
        if query not in queries:
            raise LineError(path, line, f"query {query!r} is not in queries.jsonl", "add it or remove this line")
        if document not in passages:
            raise LineError(path, line, f"document {document!r} is not in corpus.jsonl", "add it or remove this line")
        judged = judgements.setdefault(query, {})
        if document in judged:
            raise LineError(path, line, f"{query!r} and {document!r} are judged twice", "keep one of the two lines")
        judged[document] = grade
    if not judgements:
        raise InputError(f"{path}: judges no query; add lines of query-id, corpus-id and score")
    return judgements


def _parse_judgement(path: Path, line: int, text: str) -> tuple[str, str, int]:
    fields = text.split("\t")
    if len(fields) != 3:
        raise LineError(path, line, f"{len(fields)} fields, not 3", "separate query-id, corpus-id and score by tabs")
    query, document, score = fields
    if not _GRADE.fullmatch(score):
        wrong = f"score {score[:20]!r} is not a whole number from 0 to 999999999"
        raise LineError(path, line, wrong, "use 0 for not relevant, 1 or more for relevant")
    return query, document, int(score)


def _spool_corpus(path: Path, spool: Path) -> PassageIds:
    """Copy the documents to the spool; returns their ids."""
    passages = PassageIds()
    fields: set[str] = set()
    writer = DocumentWriter(spool)
    try:
        for line, record in read_objects(path):
            identifier = required_id(path, line, record, passages.positions)
            text = required_text(path, line, record, "text")
            title, metadata = _title(path, line, record), _metadata(path, line, record, fields)
            parent, span = _origin_of_chunk(path, line, record)
            passages.add(len(passages.positions) - 1, parent)
            writer.append(Document(identifier, text, title, metadata, parent, span))
    finally:
        writer.close()
    if not passages.positions:
        raise InputError(f"{path}: holds no document; write one JSON object per line")
    return passages


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
