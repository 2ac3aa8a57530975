"""A labelled data set in the BEIR layout (docs/calibration.md), read one line at a time."""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.ingestion.dataset.judgements import (
    NOWHERE,
    CorpusIds,
    JudgedId,
    Judgement,
    drop_orphans,
    judged_queries,
    qrels_of,
    read_qrels,
)
from taugate.ingestion.dataset.lines import LineError, read_objects, required_id, required_text, stored_file
from taugate.ingestion.dataset.off_topic import off_topic_questions
from taugate.ingestion.dataset.own_documents import is_same_text, left_out_notes
from taugate.retrieval.documents.store import MAX_FIELDS, MAX_TAGS, Document, DocumentStore, DocumentWriter
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate.storage.files import sha256_file

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"

# Source of a query: a person, a rule that crops documents, a language model, a user of the running service, or a rule
# that changes a labelled query so that no document answers it.
Origin = Literal["human", "crop", "llm", "traffic", "near_miss"]
PEOPLE: frozenset[Origin] = frozenset({"human", "traffic"})  # origins of queries written by people
ORIGINS: tuple[Origin, ...] = get_args(Origin)
# What a near miss changes in a labelled query: a name, a year, or a word (into its opposite).
NearMissKind = Literal["name", "year", "opposite"]
NEAR_MISS_KINDS: tuple[NearMissKind, ...] = get_args(NearMissKind)


class DatasetQuery(NamedTuple):
    """A query of queries.jsonl.

    Attributes:
        text: Text of the query.
        origin: Source of the query.
        weight: Number of queries that it stands for, if it was sampled.
        answerable: False if its line says that no document answers it; then it needs no judgement.
        kind: What a near miss changes, None for other queries.
        source: Id of the query that a near miss was made from, None for other queries.
    """

    text: str
    origin: Origin = "human"
    weight: float = 1.0
    answerable: bool = True
    kind: NearMissKind | None = None
    source: str | None = None

    @property
    def is_near_miss(self) -> bool:
        """Whether the query is a near miss that `taugate queries --unanswerable` wrote, and is still unanswerable."""
        return self.origin == "near_miss" and not self.answerable


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query of the split.

    A document is identified by the position of its first chunk; an undivided document has only that position.

    Attributes:
        id: Its `_id`.
        text: Text of the query.
        relevant: Documents with their grades, 1 or more; empty if the query is unanswerable.
        judged: Documents that an unanswerable query was judged against, all with a score of 0; empty if it is
            answerable, or if it is unanswerable whatever the document.
        origin: Source of the query.
        chunks: Positions of the relevant chunks of each document that the qrels do not name as a whole; every chunk
            of the other documents is relevant. None if the corpus has no chunks.
        weight: Number of queries that this one stands for: the inverse of the probability that it was judged.
        own_passages: Positions of the passages that are the query itself (`own_documents`). They are left out of its
            results; for most queries there are none.
    """

    id: str
    text: str
    relevant: Mapping[int, int]
    judged: tuple[int, ...] = ()
    origin: Origin = "human"
    chunks: Mapping[int, tuple[int, ...]] | None = None
    weight: float = 1.0
    own_passages: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        identifier: str,
        query: DatasetQuery,
        judgements: Mapping[JudgedId, Judgement],
        parents: NDArray[np.int32] | None,
        own_passages: tuple[int, ...] = (),
    ) -> Self:
        """Make a labelled query from its judgements.

        The grade of a document is the highest grade of the document or of its chunks. A chunk is relevant if it, or
        its document, has grade 1 or more. Weights of judgements take precedence over the weight of the query: the
        query gets the smallest weight of its relevant documents, which belongs to the judgement that was most likely
        to be made.

        Args:
            identifier: `_id` of the query.
            query: Text, origin and weight.
            judgements: Judgements by the ids that the query was judged against.
            parents: (N,) int32, the first chunk of each passage's document; None if the corpus has no chunks.
            own_passages: Passages that are the query itself; if they are judged relevant, they count as results.
        """
        relevant: dict[int, int] = {}
        chunks: dict[int, tuple[int, ...]] = {}
        named_documents: set[int] = set()
        judged: dict[int, None] = {}  # keeps the order
        for judged_id, (grade, _) in judgements.items():
            if judged_id == NOWHERE:
                continue
            position, names_document = judged_id
            document = position if parents is None else int(parents[position])
            judged[document] = None
            if grade >= 1:
                relevant[document] = max(grade, relevant.get(document, 0))
                if names_document:
                    named_documents.add(document)
                else:
                    chunks[document] = (*chunks.get(document, ()), position)
        partial = {document: positions for document, positions in chunks.items() if document not in named_documents}
        deciding = [judgement for judgement in judgements.values() if judgement.grade >= 1 or not relevant]
        weight = min((judgement.weight for judgement in deciding if judgement.weight is not None), default=query.weight)
        if any((passage if parents is None else int(parents[passage])) in relevant for passage in own_passages):
            own_passages = ()
        return cls(
            identifier,
            query.text,
            relevant,
            () if relevant else tuple(judged),
            query.origin,
            None if parents is None else partial,
            weight,
            own_passages,
        )

    def grade(self, position: int, document: int) -> int:
        """Return the grade of a passage: that of its document if the passage is relevant, else 0.

        Args:
            position: Position of the passage.
            document: Position of the document that the passage belongs to.
        """
        if self.chunks is not None and position not in self.chunks.get(document, (position,)):
            return 0
        return self.relevant.get(document, 0)


@dataclass(frozen=True)
class OtherQueries:
    """Queries of a data set that people have not judged (`taugate.ingestion.dataset.people`).

    Attributes:
        splits: The splits that were read as one.
        unjudged: Texts of other queries by people that have not been judged completely.
        generated: Answerable queries made by a rule or a language model.
        seen_only: Ids of queries judged only on results that the service showed, so that none of them can be a miss.
        unjudged_own: For each query of `unjudged`, the passages that are the query itself, as in
            `LabelledQuery.own_passages`.
    """

    splits: tuple[str, ...]
    unjudged: list[str]
    generated: list[LabelledQuery]
    seen_only: frozenset[str]
    unjudged_own: Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Dataset:
    """A corpus with the queries of one split.

    Attributes:
        name: Name of the folder.
        split: Name of the split.
        documents: Documents in the order of corpus.jsonl.
        answerable: Queries with a relevant document, in the order of queries.jsonl.
        unanswerable: Queries without a relevant document, in the order of queries.jsonl.
        sha256: Digests of the three files, by "corpus", "queries" and "qrels".
        orphaned: Number of queries left out because every document that answered them was removed.
        other_queries: Queries outside the split, for calibration with few labels; None if only the split is used.
        empty: Number of documents left out because they have neither title nor text.
        written_near_misses: Near misses in queries.jsonl, whatever the split.
    """

    name: str
    split: str
    documents: DocumentStore
    answerable: list[LabelledQuery]
    unanswerable: list[LabelledQuery]
    sha256: Mapping[str, str]
    orphaned: int = 0
    other_queries: OtherQueries | None = None
    empty: int = 0
    written_near_misses: Sequence[DatasetQuery] = ()

    @property
    def own_documents(self) -> int:
        """Number of queries of the split that are documents of the corpus, and left out of their own results."""
        return sum(bool(query.own_passages) for query in self.answerable + self.unanswerable)

    @property
    def notes(self) -> list[str]:
        """Messages for the user about documents and queries that are left out, a sentence each."""
        return left_out_notes(self.empty, self.own_documents)

    @property
    def off_topic(self) -> list[str]:
        """Off-topic questions that come with Taugate; the corpus may answer a few of them."""
        return off_topic_questions()


@dataclass(frozen=True)
class OpenDataset:
    """A data set whose documents and queries have been read; its splits are read one by one.

    Attributes:
        folder: Folder of the data set.
        documents: Documents in the order of corpus.jsonl.
        ids: Ids of the documents.
        queries: Queries by id, in the order of queries.jsonl.
    """

    folder: Path
    documents: DocumentStore
    ids: CorpusIds
    queries: Mapping[str, DatasetQuery]

    @classmethod
    def read(cls, folder: Path, split: str, spool: Path) -> Self:
        """Read and check the documents and the queries.

        Args:
            folder: Folder of the data set.
            split: Split to name in errors.
            spool: An empty folder for the documents, which has to outlive the result.

        Raises:
            InputError: At the first fault, with file and line.
        """
        if folder.is_file():
            raise InputError(
                f"{folder}: is a file, and a data set is a directory; give the directory that holds {CORPUS}, "
                f"{QUERIES} and {qrels_of(split)}"
                + (f", here {folder.parent}" if folder.name in {CORPUS, QUERIES} else "")
            )
        if not folder.is_dir():
            raise InputError(f"{folder}: no such directory; give the folder that holds corpus.jsonl")
        corpus, queries = stored_file(folder / CORPUS), stored_file(folder / QUERIES)
        stored_file(folder / qrels_of(split))
        ids = spool_corpus(corpus, spool)
        return cls(folder, DocumentStore(spool), ids, read_queries(queries))

    def labelled(self, split: str, earlier_ids: Container[str] = ()) -> tuple[list[LabelledQuery], int]:
        """Return the queries of a split in the order of queries.jsonl, and the number of queries left out as orphaned.

        A query that queries.jsonl calls unanswerable belongs to every split if no split judges it. A near miss belongs
        to none then: it is in `Dataset.written_near_misses`.

        Args:
            split: Split whose judgements are read.
            earlier_ids: As in `read_dataset`.

        Raises:
            InputError: If the file of the split cannot be read; LineError if a line of it is invalid.
        """
        unanswerable = {name for name, query in self.queries.items() if not query.answerable}
        judgements = read_qrels(self.folder / qrels_of(split), self.queries, self.ids, earlier_ids, unanswerable)
        orphaned = drop_orphans(judgements)
        if unanswerable:
            unlisted = unanswerable - judged_queries(self.folder)
            judgements |= {name: {} for name in unlisted if not self.queries[name].is_near_miss}
        return [
            LabelledQuery.of(name, query, judgements[name], self.documents.parents, self.own_passages(name))
            for name, query in self.queries.items()
            if name in judgements
        ], orphaned

    @property
    def near_misses(self) -> list[DatasetQuery]:
        """Near misses in queries.jsonl, in its order."""
        return [query for query in self.queries.values() if query.is_near_miss]

    def own_passages(self, name: str) -> tuple[int, ...]:
        """Return the positions of the passages that are the query itself.

        Args:
            name: Id of the query.
        """
        judged_id = self.ids.find(name)
        if judged_id is None:
            return ()
        positions = [judged_id.position]
        if judged_id.is_document and self.documents.parents is not None:
            positions = np.flatnonzero(self.documents.parents == judged_id.position).tolist()
        same = is_same_text(self.queries[name].text, [self.documents[position] for position in positions])
        return tuple(positions) if same else ()

    def sha256(self, split: str) -> dict[str, str]:
        """Return the digests of the three files, by "corpus", "queries" and "qrels" (of the split)."""
        names = {"corpus": CORPUS, "queries": QUERIES, "qrels": qrels_of(split)}
        return {key: sha256_file(stored_file(self.folder / name)) for key, name in names.items()}


def read_dataset(folder: Path, split: str, spool: Path, earlier_ids: Container[str] = ()) -> Dataset:
    """Read and check a data set.

    Args:
        folder: Folder of the data set.
        split: Split whose judgements are read.
        spool: An empty folder for the documents, which has to outlive the result.
        earlier_ids: Ids of documents in an earlier version of the corpus; judgements of documents that have been
            removed since are ignored.

    Raises:
        InputError: At the first fault, with file and line.
    """
    opened = OpenDataset.read(folder, split, spool)
    labelled, orphaned = opened.labelled(split, earlier_ids)
    answerable = [query for query in labelled if query.relevant]
    if not answerable:
        qrels = stored_file(folder / qrels_of(split))
        raise InputError(f"{qrels}: no query has a document with score 1 or more; label some")
    return Dataset(
        name=folder.resolve().name,
        split=split,
        documents=opened.documents,
        answerable=answerable,
        unanswerable=[query for query in labelled if not query.relevant],
        sha256=opened.sha256(split),
        orphaned=orphaned,
        empty=len(opened.ids.empty),
        written_near_misses=opened.near_misses,
    )


def read_corpus(path: Path, ids: CorpusIds) -> Iterator[Document]:
    """Yield the documents of a corpus in the order of the file, without those that have neither title nor text.

    Args:
        path: Path of corpus.jsonl.
        ids: Collection to which the ids of each document are added.

    Raises:
        InputError: If the file cannot be read or holds no document; LineError if a line is invalid.
    """
    for document in read_lines_of_corpus(path, ids):
        if document.text:
            yield document


def read_lines_of_corpus(path: Path, ids: CorpusIds) -> Iterator[Document]:
    """Yield all documents of a corpus; without title and text, a document has the text "" and no position.

    Args:
        path: Path of corpus.jsonl.
        ids: Collection to which the ids of each document are added.

    Raises:
        InputError: If the file cannot be read or holds no document; LineError if a line is invalid.
    """
    fields: set[str] = set()
    for line, record in read_objects(path):
        identifier = required_id(path, line, record, ids.passages)
        text, title = text_and_title(path, line, record)
        metadata = _metadata(path, line, record, fields)
        parent, span = _origin_of_chunk(path, line, record)
        if not text:
            del ids.passages[identifier]
            ids.empty.add(identifier)
        elif parent is not None:
            ids.documents.setdefault(parent, ids.passages[identifier])
        yield Document(identifier, text, title, metadata, parent, span)
    if not ids.passages:
        raise InputError(f"{path}: holds no document; write one JSON object per line")


def spool_corpus(path: Path, spool: Path) -> CorpusIds:
    """Copy the documents of a corpus to an empty folder, in their order, and return their ids.

    Raises:
        InputError: If the corpus is invalid.
        OSError: If the folder cannot be written.
    """
    ids = CorpusIds()
    try:
        writer = DocumentWriter(spool)
        try:
            for document in read_corpus(path, ids):
                writer.append(document)
        finally:
            writer.close()
    except OSError as error:  # from writing the copy: a corpus that cannot be read is an InputError
        raise OSError(
            f"{spool}: the documents cannot be copied there ({error.strerror or error}); free some space, or name "
            "another folder in TMPDIR"
        ) from error
    return ids


def text_and_title(path: Path, line: int, record: dict[str, Any]) -> tuple[str, str | None]:
    """Return text and title of a document. A title without a text becomes the text; without either, the text is "".

    Public data sets have both kinds (BEIR's FiQA, TREC-COVID). The parameters are those of `required_text`.

    Raises:
        LineError: If text or title is not a string.
    """
    title = _title(path, line, record)
    text = record.get("text")
    if "text" not in record or (text is not None and not isinstance(text, str)) or (text and has_visible_text(text)):
        return required_text(path, line, record, "text"), title
    return (title, None) if title and has_visible_text(title) else ("", None)


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
    """Return the metadata of a record, and add its field names to `fields`, which holds those of earlier records."""
    metadata = record.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise LineError(path, line, '"metadata" is not an object', 'write {"field": value}')
    for name, value in metadata.items():
        if isinstance(value, list):
            if not all(isinstance(tag, str) for tag in value):
                raise LineError(path, line, f"metadata {name!r} is a list with more than strings", "put each in quotes")
            if len(value) > MAX_TAGS:
                raise LineError(path, line, f"metadata {name!r} lists {len(value)} strings", f"give {MAX_TAGS} at most")
        elif isinstance(value, dict) or (isinstance(value, float) and not math.isfinite(value)):
            problem = f"metadata {name!r} is neither a scalar nor a list"
            raise LineError(path, line, problem, "use a string, number, boolean, null or list of strings")
        if value is not None:
            fields.add(name)
    if len(fields) > MAX_FIELDS:
        raise LineError(
            path, line, f"metadata has over {MAX_FIELDS} field names so far", "put varying parts into values, not names"
        )
    return metadata


def read_queries(path: Path) -> dict[str, DatasetQuery]:
    """Return the queries of queries.jsonl by id, in the order of the file.

    Raises:
        InputError: If the file cannot be read or holds no query; LineError if a line is invalid.
    """
    path = stored_file(path)
    seen: dict[str, int] = {}
    queries = {
        required_id(path, line, record, seen): DatasetQuery(
            required_text(path, line, record, "text"),
            _origin(path, line, record),
            _weight(path, line, record),
            _answerable(path, line, record),
            *_near_miss(path, line, record),
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


def _weight(path: Path, line: int, record: dict[str, Any]) -> float:
    weight: Any = record.get("weight", 1)
    if type(weight) not in {int, float} or not 0 < weight < math.inf:
        raise LineError(path, line, f'"weight" {str(weight)[:20]!r} is not a number above 0', "correct it")
    return float(weight)


def _answerable(path: Path, line: int, record: dict[str, Any]) -> bool:
    answerable: Any = record.get("answerable", True)
    if not isinstance(answerable, bool):
        raise LineError(path, line, f'"answerable" {str(answerable)[:20]!r} is not true or false', "correct it")
    return answerable


def _near_miss(path: Path, line: int, record: dict[str, Any]) -> tuple[NearMissKind | None, str | None]:
    """Return kind and source of a near miss; None and None for another query, whatever these fields hold."""
    if record.get("origin") != "near_miss":
        return None, None
    kind: Any = record.get("kind")
    if kind not in NEAR_MISS_KINDS:
        raise LineError(path, line, f'"kind" {str(kind)[:20]!r} is none of {", ".join(NEAR_MISS_KINDS)}', "correct it")
    return cast(NearMissKind, kind), required_text(path, line, record, "source")
