"""Judgements of a split: the file in qrels/, whose ids name passages, or documents with all of their chunks."""

import math
import re
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import LineError, read_lines, stored_file

# Splits with a meaning: what a data set comes with, what people judged (`taugate judge`), queries that were made
# (`taugate queries`), and what users of the running service judged (`taugate traffic`).
TEST, HUMAN, GENERATED, TRAFFIC = "test", "human", "generated", "traffic"
HEADER = "query-id\tcorpus-id\tscore"  # of a file with judgements
# Where queries or results were sampled, a fourth column says how many of them each judgement stands for.
WEIGHTED_HEADER = f"{HEADER}\tweight"
# Grades are small: a longer number is a mistake. TREC marks worthless documents by -1 and -2, and pandas writes 1.0.
_GRADE = re.compile(r"(-?[0-9]{1,9})(?:\.0*)?")


class JudgedId(NamedTuple):
    """What an id of the qrels stands for.

    Attributes:
        position: Of the passage, or of the document's first chunk.
        whole: True where all chunks of the document are meant, false where one passage is.
    """

    position: int
    whole: bool


class Judgement(NamedTuple):
    """What a person, or a rule, says of one document for one query.

    Attributes:
        grade: 0 is not relevant, 1 or more is; a grade below 0, as of TREC, is 0.
        weight: The inverse of the probability that this judgement was asked for; None where the file has no weights.
    """

    grade: int
    weight: float | None = None


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
    """The ids that qrels may name.

    Attributes:
        passages: The position of each passage by its `_id`.
        documents: The position of the first chunk of each document that the corpus holds in chunks, by the `parent` of
            these. Empty where every passage is a whole document.
        empty: Ids of documents that are left out, as they have neither title nor text.
    """

    passages: dict[str, int] = field(default_factory=dict)
    documents: dict[str, int] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)

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
    """Return the names of the splits of a data set, in alphabetical order.

    Args:
        folder: Of the data set.
    """
    files = [*folder.glob(qrels_of("*")), *folder.glob(f"{qrels_of('*')}.gz")]
    return sorted({file.name.removesuffix(".gz").removesuffix(".tsv") for file in files})


def check_split(path: Path, option: str = "--split") -> None:
    """Raise InputError where a data set has no such split.

    Args:
        path: Of the file with its judgements, packed or not.
        option: That names the split, for the message.
    """
    path = stored_file(path)
    if not path.exists() and path.parent.is_dir():
        splits = ", ".join(splits_in(path.parent.parent)) or "none"
        raise InputError(f"{path}: no such file; {option} names one of: {splits}")


def read_qrels(
    path: Path, queries: Collection[str], ids: CorpusIds, known: Container[str] = ()
) -> dict[str, dict[JudgedId, Judgement]]:
    """Read the judgements of a split: of passages and of whole documents, by query id.

    A query listed with zero scores only is unanswerable.

    Args:
        path: Of the file.
        queries: Ids of all queries.
        ids: Of the corpus.
        known: Ids that passages and documents had before; a removed one that answered a query is noted as _REMOVED.

    Raises:
        InputError: .
        LineError: .
    """
    check_split(path)
    path = stored_file(path)
    judgements: dict[str, dict[JudgedId, Judgement]] = {}
    rows = read_lines(path)
    weighted = parse_header(path, next(rows, (0, ""))[1])
    for line, text in rows:
        query, document, judgement = parse_judgement(path, line, text, weighted=weighted)
        if query not in queries:
            raise LineError(path, line, f"query {query!r} is not in queries.jsonl", "add it or remove this line")
        found = ids.find(document)
        if found is None and (document in known or document in ids.empty):
            if judgement.grade >= 1:
                judgements.setdefault(query, {})[_REMOVED] = judgement
            continue
        if found is None:
            remedy = "add it or remove this line"
            if path.name.removesuffix(".gz") == f"{GENERATED}.tsv":
                remedy = f"make the queries again: taugate queries {path.parent.parent} --method crop"
            raise LineError(path, line, f"document {document!r} is not in corpus.jsonl", remedy)
        judged = judgements.setdefault(query, {})
        if found in judged:
            raise LineError(path, line, f"{query!r} and {document!r} are judged twice", "keep one of the two lines")
        judged[found] = judgement
    if not judgements:
        raise InputError(f"{path}: judges no query; add lines of query-id, corpus-id and score")
    return judgements


def drop_orphans(judgements: dict[str, dict[JudgedId, Judgement]]) -> int:
    """Remove the queries that lost every document that answered them, and return how many there were.

    Nobody has said that no other document answers them, so that they are not unanswerable either.

    Args:
        judgements: As `read_qrels` returns them; changed in place.
    """
    orphans = [name for name, judged in judgements.items() if _REMOVED in judged and not _answered(judged)]
    for name in orphans:
        del judgements[name]
    for judged in judgements.values():
        judged.pop(_REMOVED, None)
    return len(orphans)


def _answered(judged: Mapping[JudgedId, Judgement]) -> bool:
    return any(judgement.grade >= 1 for identifier, judgement in judged.items() if identifier != _REMOVED)


def parse_header(path: Path, text: str) -> bool:
    """Tell whether a qrels file has weights.

    Args:
        path: Of the file.
        text: Its first line.

    Raises:
        LineError: .
    """
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
    """Read one line of a qrels file.

    Args:
        path: Where it stands.
        line: Where it stands.
        text: The line.
        weighted: Whether the header names weights.

    Raises:
        LineError: .
    """
    fields, columns = text.split("\t"), 4 if weighted else 3
    if len(fields) != columns:
        names = "query-id, corpus-id, score and weight" if weighted else "query-id, corpus-id and score"
        raise LineError(path, line, f"{len(fields)} fields, not {columns}", f"separate {names} by tabs")
    query, document, score = fields[:3]
    grade = _GRADE.fullmatch(score)
    if not grade:
        wrong = f"score {score[:20]!r} is not a whole number of up to nine digits"
        raise LineError(path, line, wrong, "use 0 for not relevant, 1 or more for relevant")
    weight = _weight(path, line, fields[3]) if weighted else None
    return JudgementLine(query, document, Judgement(max(0, int(grade[1])), weight))


def _is_trec(text: str) -> bool:
    """Tell whether a line has TREC's columns: query, iteration, document, grade."""
    fields = text.split()
    return len(fields) == 4 and bool(_GRADE.fullmatch(fields[1]) and _GRADE.fullmatch(fields[3]))


def _weight(path: Path, line: int, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        wrong = f"weight {text[:20]!r} is not a number above 0"
        raise LineError(path, line, wrong, "give the inverse of the probability that the judgement was asked for")
    return weight
