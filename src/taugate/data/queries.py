"""Queries of a data set, the file queries.jsonl, and a first look at its files, which finds a wrong path at once."""

import math
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, cast, get_args

import orjson

from taugate.data.judgements import TEST, parse_header, qrels_of
from taugate.data.lines import LineError, read_lines, read_objects, required_id, required_text, stored_file
from taugate.errors import InputError
from taugate.storage.files import Json

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
    """Raise InputError if a file of a data set is missing or begins with something else.

    Args:
        folder: Folder of the data set, which exists.
        split: Split whose judgements are read, if they exist; None for documents alone.
    """
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
