"""Read the query log of the service (TAUGATE_QUERY_LOG) back from one file or several."""

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from taugate.drift.monitor import Monitor
from taugate.drift.observations import Judgements, Observations, judgement_key, query_key
from taugate.drift.rules import Rules
from taugate.drift.signals import Bounds, theta_of
from taugate.errors import InputError
from taugate.ingestion.dataset.lines import LineError, read_objects
from taugate.registry.catalog import find
from taugate.retrieval.release.layout import REFERENCE
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.release.verify import verify

_LARGEST = float(np.finfo(np.float32).max)  # similarities are float32
_LATEST = 253_370_764_799.0  # the last second of 9998: what is drawn may end a little later
_HASHED = re.compile(r"[0-9a-f]{16}")
_REMEDY = "the line is not as the service wrote it; remove it"
_MISSING = "the service writes one where TAUGATE_QUERY_LOG says"
# What `queries.log*` also finds: logs that logrotate compressed, and the page of an earlier replay.
_NO_LOGS = {".gz": "compressed; unpack it with gunzip", ".html": "a page, not a log; leave it out"}


@dataclass(frozen=True)
class ReleaseLog:
    """Lines of one release.

    queries: in the order of time; judged: judgements, in the order of time; others: how many lines are of other
    releases.
    """

    queries: Observations
    judged: Judgements
    others: int


@dataclass(frozen=True)
class AnsweredLog:
    """A release with its lines of the log.

    release: its id; reference: distributions of its calibration; percentile: 0…100, of the calibration's top-K
    similarities, which gives its θ; log: its queries and judgements.
    """

    release: str
    reference: Reference
    percentile: float
    log: ReleaseLog

    @classmethod
    def read(cls, releases: Path, release: str | None, logs: Sequence[Path]) -> Self:
        """Read a release and its lines of the logs.

        releases: the directory of releases; release: its id, None for the current one; logs: files, in any order.
        Raises InputError or ReleaseError.
        """
        folder = find(releases, release)
        manifest = verify(folder)
        reference = Reference.load(folder / REFERENCE)
        log = read_log(logs, manifest.release_id, reference.top.shape[1])
        return cls(manifest.release_id, reference, manifest.bootstrap.overlap_percentile, log)

    def monitor(self, rules: Rules, ordinary: Mapping[str, Bounds] = MappingProxyType({})) -> Monitor:
        """Set up the alarms of a service that has just started with this release.

        rules: of the alarms; ordinary: bounds of a baseline by signal, which widen those of the calibration.
        """
        return Monitor(self.reference, theta_of(self.reference, self.percentile), rules, ordinary)


def read_log(paths: Sequence[Path], release: str, k: int) -> ReleaseLog:
    """Read the lines of one release.

    paths: files, in any order; release: its id; k: results that its queries have. Raises InputError where a line is not
    of a query log, or none is of the release.
    """
    queries, judged, others = _Queries(k), _Judged(), 0
    _each_once(paths)
    for path in paths:
        for number, record in read_objects(path, _MISSING):
            if record.get("release") != release:
                others += 1
            else:
                (judged if "correct" in record else queries).add(LogLine(path, number, record))
    if not len(queries):
        known = f"all of its {others} lines are of other releases; name theirs with --release" if others else "no query"
        raise InputError(f"{', '.join(map(str, paths))}: {known}")
    return ReleaseLog(queries.columns(), judged.columns(), others)


@dataclass(frozen=True)
class LogLine:
    """One line of a query log, read field by field.

    path: of its file; number: from 1; record: the JSON object. Every method raises LineError where the service did not
    write the field.
    """

    path: Path
    number: int
    record: dict[str, Any]

    def fault(self, wrong: str) -> LineError:
        """Return what is `wrong`, with the place and the remedy."""
        return LineError(self.path, self.number, wrong, _REMEDY)

    def time(self) -> float:
        """Read the Unix time of the line."""
        at = self._number("at", self.record.get("at"))
        if not 0 <= at <= _LATEST:
            raise self.fault('"at" is no time')
        return at

    def similarity(self, name: str) -> float:
        """Read one similarity, the field `name`."""
        return self._number(name, self.record.get(name))

    def similarities(self, name: str) -> list[float]:
        """Read a list of similarities, the field `name`."""
        values = self.record.get(name)
        if not isinstance(values, list):
            raise self.fault(f'"{name}" is no list')
        return [self._number(name, value) for value in values]

    def count(self, name: str, most: int) -> float:
        """Read a number from 0 to `most`, the field `name`."""
        value = self._number(name, self.record.get(name))
        if not 0 <= value <= most:
            raise self.fault(f'"{name}" is not from 0 to {most}')
        return value

    def text(self, name: str) -> str:
        """Read a string, the field `name`."""
        value = self.record.get(name)
        if not isinstance(value, str):
            raise self.fault(f'"{name}" is no text')
        return value

    def key(self, name: str) -> int:
        """Read the key of a query, the field `name`: the same whether the service wrote its text or its hash."""
        query = self.text(name)
        return int(query, 16) if _HASHED.fullmatch(query) else query_key(query)

    def _number(self, name: str, value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _LARGEST:
            raise self.fault(f'"{name}" is no number')
        return float(value)


def _each_once(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.suffix in _NO_LOGS:
            raise InputError(f"{path}: {_NO_LOGS[path.suffix]}")
        if sum(path.resolve() == other.resolve() for other in paths) > 1:
            raise InputError(f"{path}: named twice; name each file once")


class _Queries:
    """Columns of queries that grow.

    They take a tenth of what lists of Python's numbers take, and a log of a week has millions of lines.
    """

    def __init__(self, k: int) -> None:
        self._k, self._random = k, 0
        self._at, self._key = array("d"), array("Q")
        self._top, self._randoms, self._kept = array("f"), array("f"), array("f")

    def __len__(self) -> int:
        return len(self._at)

    def add(self, line: LogLine) -> None:
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
    """Columns of judgements that grow."""

    def __init__(self) -> None:
        self._at, self._key, self._correct = array("d"), array("Q"), array("f")

    def add(self, line: LogLine) -> None:
        at, correct = line.time(), line.similarity("correct")
        self._key.append(judgement_key(line.text("document_id"), correct))
        self._at.append(at)
        self._correct.append(correct)

    def columns(self) -> Judgements:
        at, key = np.array(self._at), np.array(self._key, dtype=np.uint64)
        judged = Judgements(at, key, np.array(self._correct, dtype=np.float32))
        return judged.take(np.argsort(at, kind="stable"))
