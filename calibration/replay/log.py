"""The query log of the service (TAUGATE_QUERY_LOG), read back from one file or several."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taugate.calibration.replay.line import Line
from taugate.drift.observations import Judgements, Observations, judgement_key
from taugate.errors import InputError
from taugate.ingestion.dataset.lines import read_objects

_MISSING = "the service writes one where TAUGATE_QUERY_LOG says"
# What `queries.log*` also finds: logs that logrotate compressed, and the page of an earlier replay.
_NO_LOGS = {".gz": "compressed; unpack it with gunzip", ".html": "a page, not a log; leave it out"}


@dataclass(frozen=True)
class QueryLog:
    """What one release answered, in the order of time; others: how many lines are of other releases."""

    queries: Observations
    judged: Judgements
    others: int


def read_log(paths: Sequence[Path], release: str, k: int) -> QueryLog:
    """Of one or more files in any order.

    Raises InputError where a line is not of a query log, or none is of the release, which has `k` results.
    """
    queries, judged, others = _Queries(k), _Judged(), 0
    _each_once(paths)
    for path in paths:
        for number, record in read_objects(path, _MISSING):
            if record.get("release") != release:
                others += 1
            else:
                (judged if "correct" in record else queries).add(Line(path, number, record))
    if not len(queries):
        known = f"all of its {others} lines are of other releases; name theirs with --release" if others else "no query"
        raise InputError(f"{', '.join(map(str, paths))}: {known}")
    return QueryLog(queries.columns(), judged.columns(), others)


def _each_once(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.suffix in _NO_LOGS:
            raise InputError(f"{path}: {_NO_LOGS[path.suffix]}")
        if sum(path.resolve() == other.resolve() for other in paths) > 1:
            raise InputError(f"{path}: named twice; name each file once")


class _Queries:
    """Columns that grow: a tenth of what lists of Python's numbers take, and a log of a week has millions of lines."""

    def __init__(self, k: int) -> None:
        self._k, self._random = k, 0
        self._at, self._key = array("d"), array("Q")
        self._top, self._randoms, self._kept = array("f"), array("f"), array("f")

    def __len__(self) -> int:
        return len(self._at)

    def add(self, line: Line) -> None:
        top, random = line.similarities("topk"), line.similarities("random")
        if len(top) != self._k or not random or len(random) != (self._random or len(random)):
            raise line.fault(f"{len(top)} and {len(random)} similarities")
        at, key, kept = line.time(), line.key("query"), line.count("kept", self._k)
        self._random = len(random)
        self._at.append(at)
        self._key.append(key)
        self._kept.append(kept)
        self._top.extend(top)
        self._randoms.extend(random)

    def columns(self) -> Observations:
        at = np.array(self._at)
        return Observations(
            at,
            np.array(self._key, dtype=np.uint64),
            np.array(self._top, dtype=np.float32).reshape(-1, self._k),
            np.array(self._randoms, dtype=np.float32).reshape(len(at), -1),
            np.array(self._kept, dtype=np.float32),
        ).take(np.argsort(at, kind="stable"))


class _Judged:
    """The same of judgements."""

    def __init__(self) -> None:
        self._at, self._key, self._correct = array("d"), array("Q"), array("f")

    def add(self, line: Line) -> None:
        at, correct = line.time(), line.similarity("correct")
        self._key.append(judgement_key(line.text("document_id"), correct))
        self._at.append(at)
        self._correct.append(correct)

    def columns(self) -> Judgements:
        at, key = np.array(self._at), np.array(self._key, dtype=np.uint64)
        judged = Judgements(at, key, np.array(self._correct, dtype=np.float32))
        return judged.take(np.argsort(at, kind="stable"))
