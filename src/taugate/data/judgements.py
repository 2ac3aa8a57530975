"""Judgements of a split: the file in qrels/, whose ids name passages, or documents with all of their chunks."""

import math
import re
from collections.abc import Collection, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taugate.data.lines import LineError, read_lines, stored_file
from taugate.errors import InputError

# Splits with a meaning: the test split of a data set, queries judged by people (`taugate judge`), generated queries
# (`taugate queries`), and queries judged by users of the running service (`taugate traffic`).
TEST, HUMAN, GENERATED, TRAFFIC = "test", "human", "generated", "traffic"
HEADER = "query-id\tcorpus-id\tscore"  # of a file with judgements
# If queries or results were sampled, a fourth column holds the number of queries or results per judgement.
WEIGHTED_HEADER = f"{HEADER}\tweight"
NO_DOCUMENT = "-"  # in place of a document: nothing in the corpus answers the query
# Grades are small: a longer number is a mistake. TREC marks worthless documents by -1 and -2, and pandas writes 1.0.
_GRADE = re.compile(r"(-?[0-9]{1,9})(?:\.0*)?")


class JudgedId(NamedTuple):
    """The passage or document named by an id of the qrels."""

    position: int  # position of the passage, or of the document's first chunk
    is_document: bool  # whether the id names a document with all of its chunks, not a single passage


class Judgement(NamedTuple):
    """The relevance of one document to one query, judged by a person or a rule."""

    grade: int  # 0 is not relevant, 1 or more is; negative grades, as in TREC, become 0. See `answering_from` as well
    # the inverse of the probability that this judgement was requested; None if the file has no weights
    weight: float | None = None

    def answering_from(self, lowest: int | None) -> "Judgement":
        """Return the judgement with its grade as a negative number if it is below the lowest grade that answers."""
        # Such a document gains in NDCG, and does not answer the query.
        return self if self.grade >= (lowest or 1) else self._replace(grade=-self.grade)


class JudgementLine(NamedTuple):
    """One line of a qrels file: ids of the query and of the document, and the judgement."""

    query: str
    document: str
    judgement: Judgement

    def __str__(self) -> str:
        weight = "" if self.judgement.weight is None else f"\t{self.judgement.weight!r}"
        return f"{self.query}\t{self.document}\t{self.judgement.grade}{weight}"


@dataclass(frozen=True)
class CorpusIds:
    """The ids that qrels may name."""

    passages: dict[str, int] = field(default_factory=dict)  # the position of each passage by its `_id`
    # the position of the first chunk of each divided document, by the `parent` of its chunks. Empty if every passage is
    # a whole document
    documents: dict[str, int] = field(default_factory=dict)
    # ids of documents that are left out, as they have neither title nor text
    empty: set[str] = field(default_factory=set)

    def find(self, identifier: str) -> JudgedId | None:
        """Return the passage or document of an id, None if unknown. Passages take precedence over documents."""
        if identifier in self.passages:
            return JudgedId(self.passages[identifier], is_document=False)
        if identifier in self.documents:
            return JudgedId(self.documents[identifier], is_document=True)
        return None


_REMOVED = JudgedId(-1, is_document=False)  # stands for documents that are no longer in the corpus
NOWHERE = JudgedId(-2, is_document=False)  # the id of a judgement that no document answers the query


def qrels_of(split: str) -> str:
    """Return the path of the file with a split's judgements, relative to the data set."""
    return f"qrels/{split}.tsv"


def splits_in(folder: Path) -> list[str]:
    """Return the names of the splits of a data set, in alphabetical order."""
    files = [*folder.glob(qrels_of("*")), *folder.glob(f"{qrels_of('*')}.gz")]
    return sorted({file.name.removesuffix(".gz").removesuffix(".tsv") for file in files})


def judged_queries(folder: Path, other_than: str | None = None) -> set[str]:
    """Return the ids of the queries that the splits of a data set judge; `other_than`: a split to leave out."""
    files = [folder / qrels_of(split) for split in splits_in(folder) if split != other_than]
    return {text.partition("\t")[0] for path in files for line, text in read_lines(path) if line > 1}


def check_split(path: Path, option: str = "--split") -> None:
    """Check that a data set has a split; `path`: path of the file with its judgements, packed or not."""
    path = stored_file(path)
    if not path.exists() and path.parent.is_dir():
        splits = ", ".join(splits_in(path.parent.parent)) or "none"
        raise InputError(f"{path}: no such file; {option} names one of: {splits}")


def read_qrels(
    path: Path,
    queries: Collection[str],
    ids: CorpusIds,
    earlier_ids: Container[str] = (),
    unanswerable: Container[str] = (),
    relevant_from: int | None = None,
) -> dict[str, dict[JudgedId, Judgement]]:
    """Read the judgements of a split: of passages and of whole documents, by query id.

    A query listed without a score that answers is unanswerable. A row with `-` in place of a document says so without
    one, and is recorded under NOWHERE.

    Args:
        earlier_ids: Ids of passages and documents in an earlier version of the corpus; if a removed one answered a
            query, the judgement is recorded under _REMOVED.
        unanswerable: Ids of the queries that queries.jsonl calls unanswerable.
        relevant_from: The lowest grade that answers; None for 1. Files that Taugate writes have no grades: the split
            `generated`, and those with weights, which were sampled.
    """
    check_split(path)
    path = stored_file(path)
    judgements: dict[str, dict[JudgedId, Judgement]] = {}
    rows = read_lines(path)
    weighted = parse_header(path, next(rows, (0, ""))[1])
    generated = path.name.removesuffix(".gz") == f"{GENERATED}.tsv"
    for line, text in rows:
        query, document, judgement = parse_judgement(path, line, text, weighted=weighted)
        judgement = judgement.answering_from(None if weighted or generated else relevant_from)
        if query not in queries:
            raise LineError(path, line, f"query {query!r} is not in queries.jsonl", "add it or remove this line")
        if query in unanswerable and judgement.grade >= 1:
            problem = f'query {query!r} has "answerable": false in queries.jsonl, and here a document that answers it'
            raise LineError(path, line, problem, "correct one of the two")
        judged_id = ids.find(document) or (NOWHERE if document == NO_DOCUMENT else None)
        if judged_id == NOWHERE and judgement.grade >= 1:
            raise LineError(
                path, line, f"{NO_DOCUMENT!r} stands for no document, so its score is 0", "correct the line"
            )
        if judged_id is None and (document in earlier_ids or document in ids.empty):
            judged_id = _REMOVED
            if judgement.grade < 1:
                continue
        if judged_id is None:
            remedy = "add it or remove this line"
            if generated:
                remedy = f"make the queries again: taugate queries {path.parent.parent} --method crop"
            raise LineError(path, line, f"document {document!r} is not in corpus.jsonl", remedy)
        judged = judgements.setdefault(query, {})
        if judged_id in judged and judged_id != _REMOVED:
            raise LineError(path, line, f"{query!r} and {document!r} are judged twice", "keep one of the two lines")
        judged[judged_id] = judgement
        if NOWHERE in judged and any(grade >= 1 for grade, _ in judged.values()):
            problem = f"query {query!r} has a document that answers it, and a line with {NO_DOCUMENT!r} for none"
            raise LineError(path, line, problem, "remove one of the two lines")
    if not judgements:
        raise InputError(f"{path}: judges no query; add lines of query-id, corpus-id and score")
    return judgements


def drop_orphans(judgements: dict[str, dict[JudgedId, Judgement]]) -> int:
    """Remove the queries whose relevant documents have all been removed, and return their number."""
    # They are not unanswerable either, as other documents may answer them.
    orphans = [
        name
        for name, judged in judgements.items()
        if _REMOVED in judged
        and not any(grade >= 1 for identifier, (grade, _) in judged.items() if identifier != _REMOVED)
    ]
    for name in orphans:
        del judgements[name]
    for judged in judgements.values():
        judged.pop(_REMOVED, None)
    return len(orphans)


def parse_header(path: Path, text: str) -> bool:
    """Return whether a qrels file has weights. Raises LineError if the line is not the header of a qrels file."""
    if _is_trec(text):
        raise LineError(
            path,
            1,
            "has TREC's four columns",
            f"keep columns 1, 3 and 4, separated by tabs, below the header {HEADER!r}",
        )
    if text not in {HEADER, WEIGHTED_HEADER}:
        raise LineError(path, 1, "not the header of a qrels file", f"write {HEADER!r} (tabs between) as the first line")
    return text == WEIGHTED_HEADER


def parse_judgement(path: Path, line: int, text: str, *, weighted: bool = False) -> JudgementLine:
    """Read one line of a qrels file. Raises LineError if the line is invalid."""
    fields, columns = text.split("\t"), 4 if weighted else 3
    if len(fields) != columns:
        names = "query-id, corpus-id, score and weight" if weighted else "query-id, corpus-id and score"
        raise LineError(path, line, f"{len(fields)} fields, not {columns}", f"separate {names} by tabs")
    query, document, score = fields[:3]
    grade = _GRADE.fullmatch(score)
    if not grade:
        problem = f"score {score[:20]!r} is not a whole number of up to nine digits"
        raise LineError(path, line, problem, "use 0 for not relevant, 1 or more for relevant")
    weight = _weight(path, line, fields[3]) if weighted else None
    return JudgementLine(query, document, Judgement(max(0, int(grade[1])), weight))


def _is_trec(text: str) -> bool:
    """Return whether a line has TREC's columns: query, iteration, document, grade."""
    fields = text.split()
    return len(fields) == 4 and bool(_GRADE.fullmatch(fields[1]) and _GRADE.fullmatch(fields[3]))


def _weight(path: Path, line: int, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        problem = f"weight {text[:20]!r} is not a number above 0"
        raise LineError(path, line, problem, "give the inverse of the probability that the judgement was requested")
    return weight
