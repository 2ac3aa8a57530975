"""Appends replies and judgements to the query log, and replaces old texts in it by their hashes.

Replaces old texts in the query log by their hashes while all workers continue writing to it. First, a copy without the
old texts is made while others append to the log. Then the log is locked, the lines added since are copied as well, and
the copy replaces the log. A writer that waited for the lock sees that the path now belongs to another file, and opens
that one.
"""

import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import orjson

from taugate.drift.chain import Chain
from taugate.drift.observations import JudgedReplies, Judgements, Keys, Observations, hashed, query_keys
from taugate.drift.query_log import LoggedJudgement, LoggedQuery, ShownResult, hashed_filter, is_hash, line_bytes
from taugate.errors import EngineUnavailable
from taugate.policy.arrays import Float64
from taugate.registry.writer import read_private_key
from taugate.release.manifest import ReleaseManifest
from taugate.release.queries import Reference
from taugate.retrieval.documents.filters import filter_json
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.query import Query, Stage
from taugate.service.pipeline.record import SearchRecord, random_documents
from taugate.service.settings.settings import Settings
from taugate.storage.files import append_lines, set_mode, sync, sync_folder
from taugate.storage.folders import EXCLUSIVE, acquire, is_at

_EVERY_SECONDS = 3600.0
_HASHING_LOCK_SECONDS = 10.0  # writers keep the lock for a millisecond
_DAY_SECONDS = 86400.0


class WatchedRelease(Protocol):
    """A release whose traffic is watched: one that is searched, or one that cuts the results of another retriever."""

    @property
    def manifest(self) -> ReleaseManifest:
        """Manifest of the release."""
        ...

    @property
    def reference(self) -> Reference:
        """Scores of the calibration queries, for comparison with live ones."""
        ...

    @property
    def documents(self) -> Documents | None:
        """Documents by position; None if the release has none, so that records name their results."""
        ...

    @property
    def questions(self) -> Sequence[bytes]:
        """Questions of the calibration, as lines of JSON; none if the release has no documents, or no such file."""
        ...


class ServedReply(NamedTuple):
    """A reply that was sent at a Unix time in seconds, and the name of the API key, None without keys.

    A tuple, because one is made for every request and tuples are fastest to make.
    """

    at: float
    query_id: str
    query: Query
    key: str | None
    record: SearchRecord


class Judged(NamedTuple):
    """A judgement by a user."""

    line: LoggedJudgement
    key: int
    # weight of its similarity in COE, the inverse of the propensity; None unless it is the first relevant result
    # of a comparable reply
    weight: float | None
    # whether it shows that the kept results of the reply hold a relevant one, or none; None if neither, or if it
    # is known already
    decides: bool | None


def observations(served: Sequence[ServedReply], k: int, random: int, components: int = 0) -> Observations:
    """Convert those replies into columns whose similarities can be compared with the calibration."""
    # `k` is K of the calibration, `random` the number of random documents compared with each query, and
    # `components` that of the components of a retriever.
    width, beside = k + random + components, k + random
    served = [reply for reply in served if len(reply.record.similarities) == width]
    similarities = np.empty((len(served), width), dtype=np.float32)
    if served:
        np.concatenate([reply.record.similarities for reply in served], out=similarities.reshape(-1))
    # A clock may be set back; times must not decrease all the same.
    at = np.maximum.accumulate(np.array([reply.at for reply in served], dtype=np.float64))
    keys = query_keys(reply.query.identity for reply in served)
    kept = np.array([reply.record.uncut_kept for reply in served], dtype=np.float32)
    return Observations(at, keys, similarities[:, :k], similarities[:, k:beside], kept, similarities[:, beside:])


def judgements(judged: Sequence[Judged]) -> tuple[Judgements, JudgedReplies]:
    """Convert the judgements that drift uses into columns: of relevant documents, and of replies."""
    correct = [judgement for judgement in judged if judgement.weight is not None]
    decided = [judgement for judgement in judged if judgement.decides is not None]
    scores = np.array([judgement.line.score for judgement in correct], dtype=np.float32)
    weights = np.array([judgement.weight for judgement in correct], dtype=np.float32)
    relevant = np.array([judgement.decides for judgement in decided], dtype=np.float32)
    return Judgements(*_times_and_keys(correct), scores, weights), JudgedReplies(*_times_and_keys(decided), relevant)


def _times_and_keys(judged: Sequence[Judged]) -> tuple[Float64, Keys]:
    at = np.maximum.accumulate(np.array([judgement.line.at for judgement in judged], dtype=np.float64))
    return at, np.array([judgement.key for judgement in judged], dtype=np.uint64)


_log = logging.getLogger(__name__)
_LOCK_SECONDS = 30.0  # other workers append to the same file, each for a millisecond every few seconds
_CACHED_IDS = 1 << 16  # of documents: reading one takes as long as writing the rest of a result, or a round trip
_MAX_LATE = 1 << 14  # replies that wait for an engine


def decision_chain(settings: Settings) -> Chain | None:
    """Return what chains the lines of this process's query log; None unless the settings ask for it.

    Raises:
        InputError: If the key cannot be read.
    """
    drift = settings.drift
    if drift.query_log is None or not drift.query_log_chain:
        return None
    path = drift.decision_log_key_file
    return Chain(drift.query_log, None if path is None else read_private_key(path))


def _thresholds(manifest: ReleaseManifest, stage: Stage | None) -> tuple[float | None, float | None]:
    """Return τ and ρ of a release, or of its first stage alone."""
    searched = manifest.searchable
    deciding = searched.first_stage if searched is not None and stage == "first" else manifest
    return deciding.policy.tau, None if deciding.refusal is None else deciding.refusal.rho


class QueryLog:
    """Appends lines to a file, and creates it again after it was moved away, as by logrotate."""

    def __init__(self, path: Path, release: WatchedRelease, *, texts: bool, chain: Chain | None = None) -> None:
        """Write the traffic of a release to `path`, with queries and filters as they are if `texts`, else hashed."""
        self.chain = chain
        self._decisions = {stage: _thresholds(release.manifest, stage) for stage in (None, "first", "second")}
        self._path, self._texts = path, texts
        self._release, self._collection = release.manifest.release_id, release.manifest.data.name
        self._k = release.reference.top.shape[1]
        self._beside = self._k + random_documents(release.manifest)
        self._documents = release.documents  # None if every record names its results itself
        self._ids: dict[int, str] = {}  # by position
        self._late: list[ServedReply] = []  # replies whose documents the engine could not provide yet
        self._writable = True

    def write(self, served: Sequence[ServedReply], judged: Sequence[Judged]) -> None:
        """Append a line for each query and for each judgement."""
        # The first of several errors is logged, and again the first error after a successful write.
        served = self._with_known_ids([*self._late, *served])
        if not served and not judged:
            return  # without a write, nothing is known about the file
        try:
            self._append([*self._queries(served), *(self._judgement(judgement.line) for judgement in judged)])
        except OSError as error:
            if self._writable:
                _log.error("cannot write the query log", extra={"fields": {"reason": str(error)}})
            self._writable = False
        else:
            self._writable = True

    def forget_old_texts(self, days: float) -> None:
        """Hash the queries and filters of lines older than `days`; see the function below."""
        try:
            if changed := forget_old_texts(self._path, days, time.time()):
                _log.info("replaced old texts in the query log by hashes", extra={"fields": {"lines": changed}})
        except OSError as error:
            _log.error("cannot remove old texts from the query log", extra={"fields": {"reason": str(error)}})

    def _with_known_ids(self, served: list[ServedReply]) -> list[ServedReply]:
        """Read the ids of all results together, and return the replies; empty for now if the engine is unavailable."""
        if self._documents is None:
            return served
        records = {reply.record for reply in served}
        shown = {position for record in records for position in record.results["position"].tolist()}
        missing = np.array(sorted(shown - {*self._ids}), dtype=np.int64)
        try:
            documents = self._documents.at(missing)
        except EngineUnavailable:
            self._late = served[-_MAX_LATE:]
            return []
        self._late = []
        if len(self._ids) + len(missing) > _CACHED_IDS:
            self._ids = {position: name for position, name in self._ids.items() if position in shown}
        self._ids |= zip(missing.tolist(), (document.id for document in documents), strict=True)
        return served

    def _queries(self, served: Sequence[ServedReply]) -> Iterator[bytes]:
        """Yield the line of each reply."""
        # A cached reply is sent again and again: its arrays are read once.
        records = {reply.record for reply in served}
        lists = {record: (record.similarities.tolist(), self._shown(record)) for record in records}
        for at, query_id, query, key, record in served:
            query_filter = filter_json(query.filter) if query.filter else None
            similarities, shown = lists[record]
            line = LoggedQuery(
                at=at,
                query_id=query_id,
                query=query.text if self._texts and query.text else hashed(query.identity),
                key=key,
                collection=self._collection,
                release=self._release,
                filter=query_filter if self._texts or query_filter is None else hashed_filter(query_filter),
                k=query.k,
                threshold=query.threshold,
                group_by=query.group_by,
                kept=record.uncut_kept if similarities else 0,
                topk=similarities[: self._k],
                random=similarities[self._k : self._beside],
                components=similarities[self._beside :],
                shown=shown,
                stage=record.stage,
                not_comparable=record.not_comparable,
            )
            if self.chain is None:
                yield line_bytes(line)
            else:
                yield self.chain.query(line, query.identity, *self._decisions[record.stage], record.reason)

    def _shown(self, record: SearchRecord) -> list[ShownResult]:
        results = record.results.tolist()
        names = record.ids or [self._ids[position] for position, *_ in results]
        return [
            ShownResult(id=name, rank=rank, score=score, propensity=propensity)
            for name, (_, score, rank, propensity, _) in zip(names, results, strict=True)
        ]

    def _judgement(self, line: LoggedJudgement) -> bytes:
        if self.chain is not None:
            return self.chain.judgement(line)
        named = line.query is not None and not self._texts
        return line_bytes(replace(line, query=hashed(str(line.query))) if named else line)

    def seal(self) -> None:
        """End what this process wrote with a root, so that a missing last line is found."""
        if self.chain is not None:
            with suppress(OSError):  # `write` has logged it
                self._append([], seal=True)

    def _append(self, lines: list[bytes], *, seal: bool = False) -> None:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                with suppress(OSError):  # a file system without locks
                    acquire(descriptor, EXCLUSIVE, _LOCK_SECONDS)
                if is_at(descriptor, self._path):  # else another file has replaced it in the meantime
                    if self.chain is None:
                        append_lines(descriptor, b"".join(lines))
                    else:
                        self.chain.append(descriptor, lines, time.time(), seal=seal)
                    return
            finally:
                os.close(descriptor)


def forget_old_texts(log: Path, days: float, now: float) -> int:
    """Hash the queries and filters of lines older than `days`, at a Unix time; returns how many lines were changed."""
    # One process does this at a time, and all processes together once an hour; otherwise 0 is returned. The log
    # need not exist, and is left alone unless it is a regular file.
    log = log.resolve()
    try:
        if not stat.S_ISREG(log.stat().st_mode):
            return 0
    except FileNotFoundError:
        return 0
    turn = os.open(log.with_name(f".{log.name}.texts"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # The file is empty before the first turn, and its modification time is that of the last one.
        status = os.fstat(turn)
        if not acquire(turn, EXCLUSIVE) or (status.st_size and now - status.st_mtime < _EVERY_SECONDS):
            return 0
        changed = _replace(log, now - days * _DAY_SECONDS)
        os.pwrite(turn, b"\n", 0)
        os.utime(turn, (now, now))
        return changed
    finally:
        os.close(turn)


def _replace(log: Path, before: float) -> int:
    # Always the same name: a copy with texts that a killed process has left is deleted at the next turn.
    copy = log.with_name(f".{log.name}.copy")
    copy.unlink(missing_ok=True)
    try:
        descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as new, log.open("r+b") as old:
            set_mode(new.fileno(), stat.S_IMODE(os.fstat(old.fileno()).st_mode))
            _lock(old)
            end = os.fstat(old.fileno()).st_size  # lines up to here are complete and do not change
            fcntl.flock(old, fcntl.LOCK_UN)
            changed = _copy(old, new, end, before)
            if not changed:
                return 0
            _lock(old)
            added = os.fstat(old.fileno()).st_size - end
            # Moved or truncated since, as by logrotate: the copy no longer corresponds to the file at the path.
            if not is_at(old.fileno(), log) or added < 0:
                return 0
            new.write(os.pread(old.fileno(), added, end))  # past what `old` may have buffered
            new.flush()
            sync(new.fileno())
            copy.replace(log)
        sync_folder(log.parent)
        return changed
    finally:
        copy.unlink(missing_ok=True)


def _copy(old: BinaryIO, new: BinaryIO, end: int, before: float) -> int:
    """Copy the lines up to `end`, hashing texts older than `before`; returns how many lines were changed."""
    changed = 0
    while line := old.readline(end - old.tell()):  # empty at the end, and if the log was truncated in the meantime
        shorter = _without_text(line, before)
        changed += shorter != line
        new.write(shorter)
    return changed


def _without_text(line: bytes, before: float) -> bytes:
    """Return a line with hashes in place of texts if it is older than `before`; other lines are unchanged."""
    with suppress(orjson.JSONDecodeError):
        record = orjson.loads(line)
        if isinstance(record, dict) and isinstance(at := record.get("at"), int | float) and at < before:
            texts: dict[str, str] = {}
            if isinstance(query := record.get("query"), str) and not is_hash(query):
                texts["query"] = hashed(query)
            if isinstance(query_filter := record.get("filter"), dict):
                texts["filter"] = hashed_filter(query_filter)
            if texts:
                return orjson.dumps(record | texts) + b"\n"
    return line


def _lock(file: BinaryIO) -> None:
    if not acquire(file.fileno(), EXCLUSIVE, _HASHING_LOCK_SECONDS):
        raise TimeoutError(f"another process has locked the log for over {_HASHING_LOCK_SECONDS:g} s")
