"""Observations of answered queries and of judgements, in chronological order, and a sliding window over them."""

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from taugate.policy.arrays import Float32, Float64
from taugate.release.queries import Reference

Keys = NDArray[np.uint64]
_TYPES: Mapping[str, DTypeLike] = {"at": np.float64, "key": np.uint64}


@dataclass(frozen=True)
class Columns:
    """Columns with a row for each of n queries or judgements."""

    at: Float64  # (n,) Unix times in seconds, none earlier than the one before it
    key: Keys  # (n,) uint64, equal if the same query or judgement is sent again

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: slice | NDArray[np.int64]) -> Self:
        """Return the rows at `rows`, a slice or int64 positions."""
        return type(self)(**{name: column[rows] for name, column in self.columns().items()})

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return every column by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def none(cls) -> Self:
        """Return no rows; not for columns of several values a row."""
        return cls(*(np.zeros(0, dtype=_TYPES.get(field.name, np.float32)) for field in fields(cls)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate at least one part; a time that is earlier than the one before it becomes the same."""
        columns = {field.name: np.concatenate([part.columns()[field.name] for part in parts]) for field in fields(cls)}
        return cls(**columns | {"at": np.maximum.accumulate(columns["at"])})


@dataclass(frozen=True)
class Observations(Columns):
    """Observations of n queries. K is the number of results that the release was calibrated at."""

    top: Float32  # (n, K) similarities of the top-K before the cut, best first
    random: Float32  # (n, r) similarities with random documents
    kept: Float32  # (n,) how many of the K the calibrated threshold keeps
    components: Float32  # (n, C) mean scores of the C components of a retriever among the K; C = 0 without any


def calibration_observations(reference: Reference) -> Observations:
    """Return the calibration queries of a release as if they had been sent live, all at once."""
    keys = np.arange(len(reference), dtype=np.uint64)  # all different
    kept = reference.kept.astype(np.float32)
    random = reference.random.reshape(len(reference), -1)
    return Observations(np.zeros(len(reference)), keys, reference.top, random, kept, reference.component_means)


@dataclass(frozen=True)
class Judgements(Columns):
    """Judgements that shown documents are relevant, the first of each reply."""

    correct: Float32  # (n,) similarities of the queries with these documents
    weight: Float32  # (n,) inverse probabilities that the reply shows the document: 1 if the policy keeps it


@dataclass(frozen=True)
class JudgedReplies(Columns):
    """Replies that were judged so far that it is known whether the kept results hold a relevant one.

    It is known as soon as one of them is judged relevant, or all are judged irrelevant. If some are judged irrelevant,
    one of the others may be relevant, so the reply does not count.
    """

    relevant: Float32  # (n,) 1 if a kept result is relevant, else 0


def hashed(text: str) -> str:
    """Return 16 hexadecimal digits, equal for equal texts; a text can be guessed and verified, but not restored."""
    return _digest(text).hex()


def query_key(text: str) -> int:
    """Return the key of a query's text, a number below 2⁶⁴ with the same digits as `hashed`."""
    return int.from_bytes(_digest(text))


def query_keys(texts: Iterable[str]) -> Keys:
    """Return the keys of many texts, (n,) uint64."""
    return np.frombuffer(b"".join(map(_digest, texts)), dtype=">u8").astype(np.uint64)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:8]


Batch = TypeVar("Batch", bound=Columns)


class SlidingWindow(Generic[Batch]):
    """Batches in the order of arrival."""

    def __init__(self, max_rows: int, seconds: float) -> None:
        """Keep `max_rows` rows, none older than `seconds`."""
        self._max_rows, self._seconds = max_rows, seconds
        self._batches: deque[Batch] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, batch: Batch) -> None:
        """Add a batch, and drop the oldest rows beyond the limit."""
        if not len(batch):
            return
        self._batches.append(batch)
        self._count += len(batch)
        self._drop(self._count - self._max_rows)

    def at(self, now: float) -> list[Batch]:
        """Return the batches in the window at `now`, a Unix time in seconds, oldest first."""
        self._clip_to(now)
        while self._batches and (old := int(np.searchsorted(self._batches[0].at, now - self._seconds))):
            self._drop(old)
        return list(self._batches)

    def _clip_to(self, now: float) -> None:
        """Clip times in the future, left by a clock that was set back; else they would outlive all that follows."""
        for index, batch in enumerate(self._batches):
            if batch.at[-1] > now:
                self._batches[index] = replace(batch, at=np.minimum(batch.at, now))

    def _drop(self, rows: int) -> None:
        while rows > 0:
            first = self._batches.popleft()
            self._count -= len(first)
            if len(first) > rows:
                remaining = first.take(slice(rows, None))
                self._batches.appendleft(remaining)
                self._count += len(remaining)
            rows -= len(first)
