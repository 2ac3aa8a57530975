"""The log of drawn queries, beside the query log: what is to be judged, and what judges said.

The service appends a line for each query that it draws, with all K results; people (`taugate judge --traffic`) and the
endpoint judge append a line for each query that they judge. The file is the record of the evidence: processes follow
it, and read it again when they start. Texts are hashed as in the query log.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from taugate.drift.live_loss import JUDGED, JudgedDraws, Labels, LiveLoss, judged_draw
from taugate.drift.query_log import is_hash
from taugate.drift.sequences import Draw
from taugate.storage.files import append_lines
from taugate.storage.folders import EXCLUSIVE, acquire, is_at

PREFIX = "drawn-"
_MOST = 4000  # newest drawn queries that can be judged: some 10 MB
_LOCK_SECONDS = 30.0  # others append, each for a millisecond


def drawn_log(query_log: Path) -> Path:
    """Return the log of drawn queries that belongs to a query log."""
    return query_log.with_name(PREFIX + query_log.name)


@dataclass(frozen=True, slots=True)
class DrawnResult:
    """One of the K results of a drawn query, dropped ones too."""

    id: str
    position: int
    score: float
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnQuery:
    """A query that was drawn: to be judged by the endpoint if there is one, else by people."""

    at: float
    query_id: str
    release: str
    key: str | None
    query: str
    propensity: float
    draw: Draw
    results: list[DrawnResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnVerdict:
    """A judgement of a drawn query: the ids of its relevant results, after all were seen.

    `draw` is the draw for people among the queries that the endpoint has judged; None if people need not judge it.
    """

    at: float
    query_id: str
    judge: str
    model: bool = False
    relevant: list[str] = field(default_factory=list)
    draw: Draw | None = None


_LINE: TypeAdapter[DrawnQuery | DrawnVerdict] = TypeAdapter(DrawnQuery | DrawnVerdict)


def append(path: Path, records: Iterable[DrawnQuery | DrawnVerdict]) -> None:
    """Append records to a log that several processes write to; raises OSError if it cannot be written."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # a file system without locks
                acquire(descriptor, EXCLUSIVE, _LOCK_SECONDS)
            if is_at(descriptor, path):  # else old texts were hashed in the meantime, into another file
                append_lines(descriptor, b"".join(_LINE.dump_json(record) + b"\n" for record in records))
                return
        finally:
            os.close(descriptor)


class DrawnLog:
    """Follows the log of drawn queries for one release, or for all of them if it is None."""

    def __init__(self, path: Path, release: str | None) -> None:
        self.path, self._release = path, release
        self.queries: dict[str, DrawnQuery] = {}
        self._verdicts: dict[tuple[str, bool], DrawnVerdict] = {}
        self._file, self._read = 0, 0
        self._rows: list[JudgedDraws] = []

    @property
    def rows(self) -> JudgedDraws:
        """All judgements so far, in the order of the log."""
        return np.concatenate([np.zeros(0, JUDGED), *self._rows])

    def follow(self) -> None:
        """Read what was appended since the last call; lines that are not of this log are left out.

        Raises OSError if the file cannot be read.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        with os.fdopen(descriptor, "rb") as log:
            status = os.fstat(descriptor)
            if status.st_ino != self._file or status.st_size < self._read:  # replaced: old texts were hashed
                self._file, self._read = status.st_ino, 0
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            record = _LINE.validate_json(line)
        except ValidationError:
            return
        if isinstance(record, DrawnQuery):
            if self._release in {None, record.release}:
                self.queries[record.query_id] = record
                if len(self.queries) > _MOST:
                    self._forget(next(iter(self.queries)))
            return
        place = record.query_id, record.model
        if (query := self.queries.get(record.query_id)) is None or place in self._verdicts:
            return
        self._verdicts[place] = record
        of_model = self._verdicts.get((record.query_id, True))
        draw = query.draw if record.model or of_model is None else of_model.draw
        if draw is not None:
            other = None if record.model or of_model is None else labels_of(query, of_model)
            row = judged_draw(draw, labels_of(query, record), model=record.model, other=other)
            row["id"] = int(record.query_id[:16], 16)
            self._rows.append(row)

    def _forget(self, query_id: str) -> None:
        """Drop a query that is too old to be judged; its judgements stay in `rows`."""
        del self.queries[query_id]
        for model in (False, True):
            self._verdicts.pop((query_id, model), None)

    def waiting(self, *, model: bool, directed: bool = False) -> Iterator[DrawnQuery]:
        """Yield the queries that are to be judged, the oldest first.

        `model`: the endpoint judges; `directed`: the endpoint chooses those that people judge.
        """
        for query_id, query in self.queries.items():
            of_model = self._verdicts.get((query_id, True))
            chosen = model or (not directed if of_model is None else of_model.draw is not None)
            if chosen and (query_id, model) not in self._verdicts and not is_hash(query.query):
                yield query

    @property
    def directed(self) -> bool:
        """Whether an endpoint has judged any of the queries."""
        return any(of_model for _, of_model in self._verdicts)


def replay_loss(query_logs: Iterable[Path], release: str, limit: float | None) -> tuple[LiveLoss, int | None] | None:
    """Return the live loss by the logs of drawn queries beside query logs; None if these have no judgements.

    With it, the number of people's judgements after which the lower bound passed the limit; None if it did not. Raises
    OSError if a file cannot be read.
    """
    parts: list[JudgedDraws] = []
    for path in map(drawn_log, query_logs):
        log = DrawnLog(path, release)
        log.follow()
        parts.append(log.rows)
    rows = np.concatenate([np.zeros(0, JUDGED), *parts])
    if not len(rows):
        return None
    loss, broken = LiveLoss(limit, model=bool(rows["model"].any())), None
    for place in range(len(rows)):
        loss.add(rows[place : place + 1])
        if broken is None and limit is not None and loss.lower >= limit:
            broken = loss.judged
    return loss, broken


def labels_of(query: DrawnQuery, verdict: DrawnVerdict) -> Labels:
    """Return what a judgement says of the query as a whole."""
    relevant = {*verdict.relevant}
    return Labels.of([result.id in relevant for result in query.results], [result.kept for result in query.results])
