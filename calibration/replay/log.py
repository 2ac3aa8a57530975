"""The query log of the service (TAUGATE_QUERY_LOG), read back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.data.lines import Fault, read_objects
from retrieval.drift.observations import Judgements, Observations
from retrieval.errors import InputError

_MISSING = "the service writes one where TAUGATE_QUERY_LOG says"
_LARGEST = float(np.finfo(np.float32).max)  # similarities are float32
_REMEDY = "the line is not as the service wrote it; remove it"


@dataclass(frozen=True)
class QueryLog:
    """What one release answered, in the order of time; others: how many lines are of other releases."""

    queries: Observations
    judged: Judgements
    others: int


def read_log(path: Path, release: str, k: int) -> QueryLog:
    """Raises InputError where a line is not of a query log, or none is of the release, which has `k` results."""
    queries: list[tuple[float, float, list[float], list[float]]] = []
    judged: list[tuple[float, float]] = []
    others = 0
    for line, record in read_objects(path, _MISSING):
        if record.get("release") != release:
            others += 1
        elif "correct" in record:
            judged.append((_number(path, line, record, "at"), _number(path, line, record, "correct")))
        else:
            top, random = (_numbers(path, line, record, name) for name in ("topk", "random"))
            if len(top) != k or not random or (queries and len(random) != len(queries[0][3])):
                raise Fault(path, line, f"{len(top)} and {len(random)} similarities", _REMEDY)
            queries.append((_number(path, line, record, "at"), _number(path, line, record, "kept"), top, random))
    if not queries:
        known = f"all of its {others} lines are of other releases; name theirs with --release" if others else "no query"
        raise InputError(f"{path}: {known}")
    queries.sort(key=lambda each: each[0])
    judged.sort()
    at, kept, top_k, randoms = zip(*queries, strict=True)
    seen = Observations(np.array(at), *(np.array(column, dtype=np.float32) for column in (top_k, randoms, kept)))
    times, correct = (np.array([each[i] for each in judged]) for i in range(2))
    return QueryLog(seen, Judgements(times, correct.astype(np.float32)), others)


def _number(path: Path, line: int, record: dict[str, Any], name: str) -> float:
    value = record.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _LARGEST:
        raise Fault(path, line, f'"{name}" is no number', _REMEDY)
    return float(value)


def _numbers(path: Path, line: int, record: dict[str, Any], name: str) -> list[float]:
    values = record.get(name)
    if not isinstance(values, list):
        raise Fault(path, line, f'"{name}" is no list', _REMEDY)
    return [_number(path, line, {name: value}, name) for value in values]
