"""The log of queries that `taugate drift replay` reads: one JSON object a line, off unless a path is given."""

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from taugate.drift.observations import Judgements, Observations, hashed, judgement_key, query_keys
from taugate.storage.files import append_lines
from taugate.storage.locks import EXCLUSIVE, acquire


class ServedReply(NamedTuple):
    """A reply that went out. A tuple, which takes the least time to make, as each request makes one.

    at: Unix time in seconds; query_id: of the reply; text: of the query; observed, shown: see Reply.
    """

    at: float
    query_id: str
    text: str
    observed: bytes
    shown: bytes


@dataclass(frozen=True, slots=True)
class PositiveFeedback:
    """A document that a reply showed and that was judged relevant.

    at: when it was judged, Unix time in seconds; query_id: of the reply; similarity: with the query.
    """

    at: float
    query_id: str
    document_id: str
    similarity: float


def comparable(served: Sequence[ServedReply], k: int, random: int) -> list[ServedReply]:
    """Return the replies that can be compared with the calibration: searched without a filter, and kept whole.

    k: K of the calibration; random: how many random documents were compared with each query.
    """
    size = 4 * (1 + k + random)
    return [each for each in served if len(each.observed) == size]


def observations(served: Sequence[ServedReply], k: int, random: int) -> Observations:
    """Turn replies, all of them `comparable` with these k and random, into columns."""
    rows = np.frombuffer(b"".join(each.observed for each in served), dtype=np.float32).reshape(-1, 1 + k + random)
    # A clock may be set back: what came later is not earlier for that.
    at = np.maximum.accumulate(np.array([each.at for each in served], dtype=np.float64))
    keys = query_keys(each.text for each in served)
    return Observations(at, keys, rows[:, 1 : 1 + k], rows[:, 1 + k :], rows[:, 0])


def join(parts: Sequence[Observations]) -> Observations:
    """Concatenate parts, one at least, in their order."""
    together = Observations.joined(parts)
    return replace(together, at=np.maximum.accumulate(together.at))


def judgements(judged: Sequence[PositiveFeedback]) -> Judgements:
    """Turn judgements into columns."""
    at = np.maximum.accumulate(np.array([each.at for each in judged], dtype=np.float64))
    keys = np.array([judgement_key(each.document_id, each.similarity) for each in judged], dtype=np.uint64)
    return Judgements(at, keys, np.array([each.similarity for each in judged], dtype=np.float32))


_log = logging.getLogger("taugate.drift")
_LOCK_SECONDS = 1.0  # other workers append to the same file, each for a millisecond every few seconds


class QueryLog:
    """Appends lines to a file; one that was moved away, as by logrotate, is begun anew."""

    def __init__(self, path: Path, release: str, *, texts: bool) -> None:
        """path: of the file; release: id that goes into each line; texts: write queries as they are, not hashed."""
        self._path, self._release, self._texts = path, release, texts
        self._writable = True

    def write(self, served: Sequence[ServedReply], columns: Observations, judged: Sequence[PositiveFeedback]) -> None:
        """Append a line for each query, with its row of `columns`, and one for each judgement.

        An error is logged when it begins, and again after writing was possible meanwhile.
        """
        try:
            self._append([*self._queries(served, columns), *map(self._judgement, judged)])
        except OSError as error:
            if self._writable:
                _log.error("the query log cannot be written", extra={"fields": {"reason": str(error)}})
            self._writable = False
        else:
            self._writable = True

    def _queries(self, served: Sequence[ServedReply], columns: Observations) -> Iterable[dict[str, Any]]:
        rows = zip(columns.kept.astype(int).tolist(), columns.top.tolist(), columns.random.tolist(), strict=True)
        for each, (kept, top, random) in zip(served, rows, strict=True):
            query = each.text if self._texts else hashed(each.text)
            yield {
                "at": each.at,
                "query_id": each.query_id,
                "query": query,
                "kept": kept,
                "topk": top,
                "random": random,
            }

    def _judgement(self, judged: PositiveFeedback) -> dict[str, Any]:
        return {
            "at": judged.at,
            "query_id": judged.query_id,
            "document_id": judged.document_id,
            "correct": judged.similarity,
        }

    def _append(self, lines: Sequence[dict[str, Any]]) -> None:
        if not lines:
            return
        content = b"".join(orjson.dumps(line | {"release": self._release}) + b"\n" for line in lines)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # a file system without locks
                acquire(descriptor, EXCLUSIVE, _LOCK_SECONDS)
            append_lines(descriptor, content)
        finally:
            os.close(descriptor)
