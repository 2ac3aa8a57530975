"""The queries of a data set, and how queries and judgements are added: one writer at a time, always complete."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, cast, get_args

import orjson

from taugate.data.judgements import (
    HEADER,
    TEST,
    WEIGHTED_HEADER,
    JudgementLine,
    judged_queries,
    parse_header,
    parse_judgement,
    qrels_of,
)
from taugate.data.lines import LineError, read_lines, read_objects, required_id, required_text, stored_file
from taugate.errors import InputError
from taugate.storage.files import Json, atomic_write
from taugate.storage.folders import exclusive_lock

_CORPUS = "corpus.jsonl"

QUERIES = "queries.jsonl"

# Source of a query: a person, a rule that crops documents, a language model, a user of the running service, or a rule
# that changes a labelled query so that no document answers it.
Origin = Literal["human", "crop", "llm", "traffic", "near_miss"]
PEOPLE: frozenset[Origin] = frozenset({"human", "traffic"})  # origins of queries written by people
ORIGINS: tuple[Origin, ...] = get_args(Origin)
# What a near miss changes in a labelled query: a name, a year, or a word (into its opposite).
NearMissKind = Literal["name", "year", "opposite"]
NEAR_MISS_KINDS: tuple[NearMissKind, ...] = get_args(NearMissKind)

LOCK = ".import.lock"


def check_folder(folder: Path, split: str = TEST) -> None:
    """Raise InputError if a data set is not a folder."""
    if folder.is_file():
        raise InputError(
            f"{folder}: is a file, and a data set is a directory; give the directory that holds {_CORPUS}, {QUERIES} "
            f"and {qrels_of(split)}" + (f", here {folder.parent}" if folder.name in {_CORPUS, QUERIES} else "")
        )
    if not folder.is_dir():
        raise InputError(f"{folder}: no such directory; give the folder that holds {_CORPUS}")


def check_first_lines(folder: Path, split: str | None) -> None:
    """Raise InputError if a file of a data set is missing or begins with something else."""
    labelled = split is not None and (folder / "qrels").is_dir()  # else the command says how to label queries
    for name in (_CORPUS, QUERIES) if labelled else (_CORPUS,):
        next(read_objects(stored_file(folder / name)), None)
    if split is not None and (path := stored_file(folder / qrels_of(split))).is_file():
        for _, text in read_lines(path):
            parse_header(path, text)
            break


class DatasetQuery(NamedTuple):
    """A query of queries.jsonl."""

    text: str
    origin: Origin = "human"
    # language model that wrote it, if any; None in queries that were read, because no reader needs it
    model: str | None = None
    kind: NearMissKind | None = None  # what a near miss changes, None for other queries
    source: str | None = None  # id of the query that a near miss was made from, None for other queries
    answerable: bool = True  # false if its line says that no document answers it; then it needs no judgement
    weight: float = 1.0  # number of queries that it stands for, if it was sampled

    @property
    def is_near_miss(self) -> bool:
        """Whether the query is a near miss that `taugate queries --unanswerable` wrote, and is still unanswerable."""
        return self.origin == "near_miss" and not self.answerable

    def line(self, name: str) -> bytes:
        """Return the line of queries.jsonl with the id `name`: text, origin, and what differs from the defaults."""
        fields = {
            field: value
            for field, value in self._asdict().items()
            if field == "origin" or value != self._field_defaults.get(field)
        }
        return orjson.dumps({"_id": name} | fields) + b"\n"


class _NearMissFields(TypedDict, total=False):
    kind: NearMissKind
    source: str


def read_queries(path: Path) -> dict[str, DatasetQuery]:
    """Return the queries of queries.jsonl by id, in the order of the file."""
    path = stored_file(path)
    seen: dict[str, int] = {}
    queries = {
        required_id(path, line, record, seen): DatasetQuery(
            required_text(path, line, record, "text"),
            read_origin(path, line, record),
            weight=_weight(path, line, record),
            answerable=_answerable(path, line, record),
            **_near_miss(path, line, record),
        )
        for line, record in read_objects(path)
    }
    if not queries:
        raise InputError(f"{path}: holds no query; write one JSON object per line")
    return queries


def read_origin(path: Path, line: int, record: dict[str, Json]) -> Origin:
    """Return the source of a query, by default a person; raises LineError if it is none of ORIGINS."""
    origin: Any = record.get("origin", "human")
    if origin not in ORIGINS:
        raise LineError(path, line, f'"origin" {str(origin)[:20]!r} is none of {", ".join(ORIGINS)}', "correct it")
    return cast(Origin, origin)


def _weight(path: Path, line: int, record: dict[str, Json]) -> float:
    weight: Any = record.get("weight", 1)
    if type(weight) not in {int, float} or not 0 < weight < math.inf:
        raise LineError(path, line, f'"weight" {str(weight)[:20]!r} is not a number above 0', "correct it")
    return float(weight)


def _answerable(path: Path, line: int, record: dict[str, Json]) -> bool:
    answerable: Any = record.get("answerable", True)
    if not isinstance(answerable, bool):
        raise LineError(path, line, f'"answerable" {str(answerable)[:20]!r} is not true or false', "correct it")
    return answerable


def _near_miss(path: Path, line: int, record: dict[str, Json]) -> _NearMissFields:
    """Return kind and source of a near miss; nothing for another query, whatever these fields hold."""
    if record.get("origin") != "near_miss":
        return {}
    kind: Any = record.get("kind")
    if kind not in NEAR_MISS_KINDS:
        raise LineError(path, line, f'"kind" {str(kind)[:20]!r} is none of {", ".join(NEAR_MISS_KINDS)}', "correct it")
    return {"kind": kind, "source": required_text(path, line, record, "source")}


class DatasetBusy(InputError):
    """Another command is writing to the data set."""


def sole_writer(data: Path, seconds: float = 0) -> AbstractContextManager[None]:
    """Keep other commands from writing to a data set."""

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
    """Remove the judgements of some queries from a split; the queries are kept. The caller holds `sole_writer`."""
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
