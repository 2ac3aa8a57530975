"""Add queries and judgements to a data set, and replace earlier ones, while it stays complete at every moment."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import QUERIES, Origin, read_queries
from taugate.ingestion.dataset.judgements import (
    HEADER,
    WEIGHTED_HEADER,
    JudgementLine,
    parse_header,
    parse_judgement,
    qrels_of,
    splits_in,
)
from taugate.ingestion.dataset.lines import read_lines, stored_file
from taugate.storage.files import atomic_write


class NewQuery(NamedTuple):
    """A query that is added to queries.jsonl: its text, and who asked it.

    Attributes:
        model: That wrote it, if one did.
    """

    text: str
    origin: Origin
    model: str | None = None


class _Line(NamedTuple):
    """A line of queries.jsonl: its bytes, and what it says."""

    line: bytes
    identifier: str
    text: str
    origin: Origin


@dataclass(frozen=True)
class QueryFile:
    """The queries of a data set, with the bytes of their lines."""

    lines: Sequence[_Line]

    @classmethod
    def read(cls, data: Path) -> "QueryFile":
        """Read the queries of a data set; there are none where there is no file.

        Args:
            data: Folder of the data set.

        Raises:
            InputError: .
            LineError: .
        """
        path = data / QUERIES
        _check_unpacked(path)
        if not path.exists() or not path.stat().st_size:
            return cls([])
        queries = read_queries(path)
        with path.open("rb") as file:
            return cls(
                [
                    _Line(line, name, text, origin)
                    for line, (name, (text, origin, _)) in zip(file, queries.items(), strict=True)
                ]
            )

    def texts(self, origin: Origin | None = None, *, other_than: Origin | None = None) -> dict[str, str]:
        """Return the texts of queries, by id.

        Args:
            origin: Of the queries, None for all.
            other_than: An origin that they do not have.
        """
        return {
            each.identifier: each.text
            for each in self.lines
            if each.origin != other_than and origin in {None, each.origin}
        }

    def bytes_without(self, ids: Collection[str]) -> bytes:
        """Return the lines of all other queries, as they are in the file; the last one ends with a line break."""
        lines = b"".join(each.line for each in self.lines if each.identifier not in ids)
        return lines if not lines or lines.endswith(b"\n") else lines + b"\n"


def replace_queries(
    data: Path,
    split: str,
    before: QueryFile,
    made: Mapping[str, NewQuery],
    judgements: Sequence[JudgementLine],
    gone: Collection[str] = (),
) -> None:
    """Write judgements of a split, with the queries that they need; earlier rows of these queries are replaced.

    The judgements change while both the old and the new queries are there, so that they never name one that is missing:
    killed at any moment, the data set can be read and is complete. Every other query keeps its line, byte for byte. The
    caller holds `sole_writer`.

    Args:
        data: Folder of the data set.
        split: Whose judgements they are.
        before: The queries as they were read.
        made: Queries to add, by id; one with the id of an earlier query takes its place.
        judgements: Of these, and of queries that are there.
        gone: Ids of queries to remove, with their judgements in this split; one that another split judges stays.

    Raises:
        InputError: .
        OSError: .
    """
    qrels = data / qrels_of(split)
    _check_unpacked(qrels)
    removed = {*gone} - made.keys() - _judged_elsewhere(data, split)
    replaced = {*gone, *made, *(each.query for each in judgements)}
    rows = [each for each in judgement_lines(qrels) if each.query not in replaced]
    new = b"".join(_query_line(name, query) for name, query in made.items())
    atomic_write(data / QUERIES, before.bytes_without(made.keys()) + new)
    qrels.parent.mkdir(exist_ok=True)
    atomic_write(qrels, qrels_bytes([*rows, *judgements]))
    if removed:
        atomic_write(data / QUERIES, before.bytes_without({*made, *removed}) + new)


def remove_judgements(data: Path, split: str, queries: Collection[str]) -> None:
    """Remove the judgements of some queries from a split; the queries stay. The caller holds `sole_writer`.

    Args:
        data: Folder of the data set.
        split: Whose judgements they are; its file is removed if none is left.
        queries: Ids.

    Raises:
        InputError: .
        OSError: .
    """
    qrels = data / qrels_of(split)
    _check_unpacked(qrels)
    rows = [each for each in judgement_lines(qrels) if each.query not in queries]
    if rows:
        atomic_write(qrels, qrels_bytes(rows))
    else:
        qrels.unlink(missing_ok=True)


def qrels_bytes(judgements: Iterable[JudgementLine]) -> bytes:
    """Return the content of a qrels file; where one judgement has a weight, the others have 1."""
    lines = list(judgements)
    weighted = any(each.judgement.weight is not None for each in lines)
    if weighted:
        lines = [
            each if each.judgement.weight is not None else each._replace(judgement=each.judgement._replace(weight=1.0))
            for each in lines
        ]
    return "".join(f"{line}\n" for line in [WEIGHTED_HEADER if weighted else HEADER, *lines]).encode()


def judgement_lines(qrels: Path) -> list[JudgementLine]:
    """Read the rows of a qrels file as they are; there are none where there is no file.

    Args:
        qrels: The file.

    Raises:
        InputError: .
        LineError: .
    """
    if not qrels.exists():
        return []
    rows = read_lines(qrels)
    weighted = parse_header(qrels, next(rows, (0, ""))[1])
    return [parse_judgement(qrels, line, text, weighted=weighted) for line, text in rows]


def _judged_elsewhere(data: Path, split: str) -> set[str]:
    """Return the ids of the queries that other splits judge."""
    files = [data / qrels_of(other) for other in splits_in(data) if other != split]
    return {text.partition("\t")[0] for path in files for line, text in read_lines(path) if line > 1}


def _query_line(name: str, query: NewQuery) -> bytes:
    model = {} if query.model is None else {"model": query.model}
    return orjson.dumps({"_id": name, "text": query.text, "origin": query.origin} | model) + b"\n"


def _check_unpacked(path: Path) -> None:
    stored = stored_file(path)
    if stored != path:
        raise InputError(f"{stored}: queries cannot be added to a packed file; unpack it: gunzip {stored}")
