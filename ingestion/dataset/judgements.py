"""Judgements of a split: the file in qrels/, whose ids name passages, or documents with all of their chunks."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import LineError, read_lines, stored_file

TEST, HUMAN, GENERATED = "test", "human", "generated"  # splits with a meaning
HEADER = "query-id\tcorpus-id\tscore"  # of a file with judgements
_GRADE = re.compile(r"[0-9]{1,9}")  # grades are small; what is longer is a mistake, not a number


class JudgedId(NamedTuple):
    """What an id of the qrels stands for.

    position: of the passage, or of the document's first chunk. whole: true where all chunks of the document are meant,
    false where one passage is.
    """

    position: int
    whole: bool


@dataclass(frozen=True)
class CorpusIds:
    """The ids that qrels may name.

    passages: the position of each passage by its `_id`. documents: the position of the first chunk of each document
    that the corpus holds in chunks, by the `parent` of these. Empty where every passage is a whole document.
    """

    passages: dict[str, int] = field(default_factory=dict)
    documents: dict[str, int] = field(default_factory=dict)

    def find(self, identifier: str) -> JudgedId | None:
        """Return what an id stands for, None for an unknown one. A passage goes before a document of the same id."""
        if identifier in self.passages:
            return JudgedId(self.passages[identifier], whole=False)
        if identifier in self.documents:
            return JudgedId(self.documents[identifier], whole=True)
        return None


_REMOVED = JudgedId(-1, whole=False)  # stands for documents that the corpus no longer has


def qrels_of(split: str) -> str:
    """Return the path of the file with a split's judgements, relative to the data set."""
    return f"qrels/{split}.tsv"


def splits_in(folder: Path) -> list[str]:
    """Return the names of the splits of a data set, in alphabetical order. folder: of the data set."""
    files = [*folder.glob(qrels_of("*")), *folder.glob(f"{qrels_of('*')}.gz")]
    return sorted({file.name.removesuffix(".gz").removesuffix(".tsv") for file in files})


def read_qrels(
    path: Path, queries: Collection[str], ids: CorpusIds, known: Collection[str] = ()
) -> dict[str, dict[JudgedId, int]]:
    """Read the judgements of a split: grades of passages and of whole documents, by query id.

    A query listed with zero scores only is unanswerable.

    path: of the file. queries: ids of all queries. ids: of the corpus. known: ids that passages and documents had
    before; a removed one that answered a query is noted as _REMOVED. Raises InputError or LineError.
    """
    path = stored_file(path)
    if not path.exists() and path.parent.is_dir():
        splits = ", ".join(splits_in(path.parent.parent)) or "none"
        raise InputError(f"{path}: no such file; --split names one of: {splits}")
    grades: dict[str, dict[JudgedId, int]] = {}
    rows = read_lines(path)
    if next(rows, (0, ""))[1] != HEADER:
        raise LineError(path, 1, "not the header of a qrels file", f"write {HEADER!r} (tabs between) as the first line")
    for line, text in rows:
        query, document, grade = parse_judgement(path, line, text)
        if query not in queries:
            raise LineError(path, line, f"query {query!r} is not in queries.jsonl", "add it or remove this line")
        found = ids.find(document)
        if found is None and document in known:
            if grade >= 1:
                grades.setdefault(query, {})[_REMOVED] = grade
            continue
        if found is None:
            remedy = "add it or remove this line"
            if path.name.removesuffix(".gz") == f"{GENERATED}.tsv":
                remedy = f"make the queries again: taugate queries {path.parent.parent} --method crop"
            raise LineError(path, line, f"document {document!r} is not in corpus.jsonl", remedy)
        judged = grades.setdefault(query, {})
        if found in judged:
            raise LineError(path, line, f"{query!r} and {document!r} are judged twice", "keep one of the two lines")
        judged[found] = grade
    if not grades:
        raise InputError(f"{path}: judges no query; add lines of query-id, corpus-id and score")
    return grades


def drop_orphans(grades: dict[str, dict[JudgedId, int]]) -> int:
    """Remove the queries that lost every document that answered them, and return how many there were.

    Nobody has said that no other document answers them, so that they are not unanswerable either.

    grades: as `read_qrels` returns them; changed in place.
    """
    orphans = [name for name, judged in grades.items() if _REMOVED in judged and not _answered(judged)]
    for name in orphans:
        del grades[name]
    for judged in grades.values():
        judged.pop(_REMOVED, None)
    return len(orphans)


def _answered(judged: Mapping[JudgedId, int]) -> bool:
    return any(grade >= 1 for identifier, grade in judged.items() if identifier != _REMOVED)


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
