"""Runs and qrels for the tools of others: lines of TREC, or the JSON that ranx and pytrec_eval read."""

from collections.abc import Mapping
from pathlib import Path

import orjson

from taugate.data.judgements import NO_DOCUMENT, TEST, parse_header, parse_judgement, qrels_of
from taugate.data.lines import read_lines
from taugate.errors import InputError
from taugate.storage.files import atomic_write, writing

FORMATS = (".trec", ".json")  # suffixes of `taugate run --to`


def recorded_in(run: Path) -> Path:
    """Return the file in JSON Lines that a run is recorded in, from which a repeated command goes on."""
    return run.with_name(f"{run.name}.jsonl") if run.suffix in FORMATS else run


def write_exchanged(run: Path, queries: Path) -> Path | None:
    """Write a recorded run in the format of its suffix, and the judgements of the split `test` of a data set beside it.

    Returns:
        The qrels, None if the queries are not those of a data set with judgements.

    Raises:
        InputError: If an id has a blank, which lines of TREC cannot hold, or a file cannot be written.
    """
    with recorded_in(run).open("rb") as lines:
        results = {
            str(record["query_id"]): {str(result["id"]): result["score"] for result in record["results"]}
            for record in map(orjson.loads, lines)
        }
    _write(run, results, "{query} Q0 {document} {rank} {value} taugate")
    judged = queries / qrels_of(TEST)
    if not judged.is_file() and not judged.with_name(f"{judged.name}.gz").is_file():
        return None
    grades: dict[str, dict[str, float]] = {}
    rows = read_lines(judged)
    weighted = parse_header(judged, next(rows, (0, ""))[1])
    for line, text in rows:
        query, document, judgement = parse_judgement(judged, line, text, weighted=weighted)
        if document != NO_DOCUMENT:
            grades.setdefault(query, {})[document] = judgement.grade
    qrels = run.with_name(f"{run.stem}.qrels{run.suffix}")
    _write(qrels, grades, "{query} 0 {document} {value}")
    return qrels


def _write(path: Path, table: Mapping[str, Mapping[str, float]], line: str) -> None:
    ids = (each for query, values in table.items() for each in (query, *values))
    if path.suffix == ".json":
        content = orjson.dumps(table)
    elif blank := next((each for each in ids if each.split() != [each]), None):
        raise InputError(f"{path}: lines of TREC cannot hold the id {blank!r}, which has a blank; write .json")
    else:
        content = "".join(
            line.format(query=query, document=document, rank=rank, value=value) + "\n"
            for query, values in table.items()
            for rank, (document, value) in enumerate(values.items(), start=1)
        ).encode()
    with writing(path):
        atomic_write(path, content)
