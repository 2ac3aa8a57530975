"""Relevance judgements of one split: query-id, corpus-id and score, separated by tabs, under a header."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import Fault, read_lines

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
