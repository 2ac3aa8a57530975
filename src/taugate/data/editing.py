"""Adds and replaces queries and judgements, one writer at a time; the data set is complete at every moment."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from taugate.data.judgements import (
    HEADER,
    WEIGHTED_HEADER,
    JudgementLine,
    judged_queries,
    parse_header,
    parse_judgement,
    qrels_of,
)
from taugate.data.lines import read_lines, stored_file
from taugate.data.queries import QUERIES, DatasetQuery, Origin, read_queries
from taugate.errors import InputError
from taugate.storage.files import atomic_write
from taugate.storage.folders import exclusive_lock

LOCK = ".import.lock"


class DatasetBusy(InputError):
    """Another command is writing to the data set."""


def sole_writer(data: Path, seconds: float = 0) -> AbstractContextManager[None]:
    """Keep other commands from writing to a data set.

    Args:
        seconds: Maximum time to wait for another command that is writing to it.
    """

    def busy(holder: str) -> DatasetBusy:
        return DatasetBusy(f"{data}: another command ({holder}) is writing to it; wait until it ends")

    return exclusive_lock(data / LOCK, seconds, busy)


@dataclass(frozen=True)
class QueryFile:
    """The queries of a data set and the bytes of their lines, both by id."""

    queries: Mapping[str, DatasetQuery]
    lines: Mapping[str, bytes]

    @classmethod
    def read(cls, data: Path) -> "QueryFile":
        """Read the queries of a data set; the result is empty if there is no file."""
        path = data / QUERIES
        _check_unpacked(path)
        if not path.exists() or not path.stat().st_size:
            return cls({}, {})
        queries = read_queries(path)
        with path.open("rb") as file:
            return cls(queries, dict(zip(queries, file, strict=True)))

    def texts(self, origin: Origin | None = None, *, other_than: Origin | None = None) -> dict[str, str]:
        """Return the texts of queries, by id; `origin`: origin of the queries, None for all."""
        return {
            name: query.text
            for name, query in self.queries.items()
            if query.origin != other_than and origin in {None, query.origin}
        }

    @property
    def unanswerable(self) -> set[str]:
        """Ids of the queries whose lines say that no document answers them."""
        return {name for name, query in self.queries.items() if not query.answerable}

    def bytes_without(self, ids: Collection[str]) -> bytes:
        """Return the lines of all other queries, as they are in the file; the last one ends with a line break."""
        lines = b"".join(line for name, line in self.lines.items() if name not in ids)
        return lines if not lines or lines.endswith(b"\n") else lines + b"\n"


def replace_queries(
    data: Path,
    split: str,
    before: QueryFile,
    added: Mapping[str, DatasetQuery],
    judgements: Sequence[JudgementLine],
    removed: Collection[str] = (),
) -> None:
    """Write judgements of a split, with the queries that they need; earlier rows of these queries are replaced.

    Old and new queries are both in the file while the judgements change, so that every judged query exists: if the
    process is killed at any moment, the data set can be read and is complete. Every other query keeps its line, byte
    for byte. The caller holds `sole_writer`.

    Args:
        before: The queries as they were read.
        added: Queries to add, by id; a query with the id of an earlier one replaces it.
        removed: Ids of queries to remove, with their judgements in this split; queries judged in another split are
            kept.
    """
    qrels = data / qrels_of(split)
    _check_unpacked(qrels)
    deleted = {*removed} - added.keys() - judged_queries(data, other_than=split)
    replaced = {*removed, *added, *(judgement.query for judgement in judgements)}
    rows = [row for row in judgement_lines(qrels) if row.query not in replaced]
    new = b"".join(query.line(name) for name, query in added.items())
    atomic_write(data / QUERIES, before.bytes_without(added.keys()) + new)
    if rows or judgements or qrels.exists():
        qrels.parent.mkdir(exist_ok=True)
        atomic_write(qrels, qrels_bytes([*rows, *judgements]))
    if deleted:
        atomic_write(data / QUERIES, before.bytes_without({*added, *deleted}) + new)


def remove_judgements(data: Path, split: str, queries: Collection[str]) -> None:
    """Remove the judgements of some queries from a split; the queries are kept. The caller holds `sole_writer`.

    Args:
        split: Split of the judgements; its file is removed if no judgement is left.
    """
    qrels = data / qrels_of(split)
    _check_unpacked(qrels)
    rows = [row for row in judgement_lines(qrels) if row.query not in queries]
    if rows:
        atomic_write(qrels, qrels_bytes(rows))
    else:
        qrels.unlink(missing_ok=True)


def qrels_bytes(judgements: Iterable[JudgementLine]) -> bytes:
    """Return the content of a qrels file; if any judgement has a weight, the others get 1."""
    lines = list(judgements)
    weighted = any(line.judgement.weight is not None for line in lines)
    if weighted:
        lines = [
            line if line.judgement.weight is not None else line._replace(judgement=line.judgement._replace(weight=1.0))
            for line in lines
        ]
    return "".join(f"{line}\n" for line in [WEIGHTED_HEADER if weighted else HEADER, *lines]).encode()


def judgement_lines(qrels: Path) -> list[JudgementLine]:
    """Read the rows of a qrels file as they are; the result is empty if there is no file."""
    if not qrels.exists():
        return []
    rows = read_lines(qrels)
    weighted = parse_header(qrels, next(rows, (0, ""))[1])
    return [parse_judgement(qrels, line, text, weighted=weighted) for line, text in rows]


def _check_unpacked(path: Path) -> None:
    stored = stored_file(path)
    if stored != path:
        raise InputError(f"{stored}: queries cannot be added to a packed file; unpack it: gunzip {stored}")
