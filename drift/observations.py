"""What is seen of answered queries and of judgements, in the order in which they came."""

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.release.reference import Reference
from taugate.retrieval.vectors.similarity import Float32

Float64 = NDArray[np.float64]


def effect(share: Float64, reference: Float64) -> Float64:
    """Cohen's h, positive where `share` is the larger one; both in 0…1, of shapes that go together."""
    return 2 * (np.arcsin(np.sqrt(share)) - np.arcsin(np.sqrt(reference)))


def shifted(reference: Float64, effects: Float64 | float) -> Float64:
    """The share that lies so far from `reference`, 0 or 1 where there is none that far."""
    return np.sin(np.clip(np.arcsin(np.sqrt(reference)) + effects / 2, 0, np.pi / 2)) ** 2


Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Columns:
    """Arrays with a row for each of n things.

    at: (n,) Unix times in seconds, none earlier than the one before; key: (n,), equal for the same query, or the same
    judgement, sent again.
    """

    at: Float64
    key: Keys

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: slice | NDArray[np.int64]) -> Self:
        """Those at `rows`."""
        return type(self)(**{name: column[rows] for name, column in self.columns().items()})

    def columns(self) -> dict[str, NDArray[Any]]:
        """Every array by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All of one part, then all of the next; at least one part."""
        return cls(
            **{field.name: np.concatenate([part.columns()[field.name] for part in parts]) for field in fields(cls)}
        )


@dataclass(frozen=True)
class Observations(Columns):
    """Of n queries, K the number of results that the release was calibrated at.

    top: (n, K) similarities of the top-K before the cut, best first; random: (n, r) similarities with random documents;
    kept: (n,) results of the K that the calibrated threshold keeps.
    """

    top: Float32
    random: Float32
    kept: Float32


def calibration_observations(reference: Reference) -> Observations:
    """The calibration queries of a release, as if they had been asked live, all at once."""
    keys = np.arange(len(reference), dtype=np.uint64)  # all of them different
    kept = reference.kept.astype(np.float32)
    return Observations(np.zeros(len(reference)), keys, reference.top, reference.random[:, None], kept)


@dataclass(frozen=True)
class Judgements(Columns):
    """correct: (n,) similarities of queries with a document that was shown and judged relevant."""

    correct: Float32

    @classmethod
    def none(cls) -> Self:
        """No judgement at all."""
        return cls(np.zeros(0), np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.float32))


def hashed(text: str) -> str:
    """16 hexadecimal digits, equal for equal texts; the text cannot be read back from them, only guessed and tried."""
    return _digest(text).hex()


def query_key(text: str) -> int:
    """The same as a number below 2⁶⁴."""
    return int.from_bytes(_digest(text))


def query_keys(texts: Iterable[str]) -> Keys:
    """Those of many texts."""
    return np.frombuffer(b"".join(map(_digest, texts)), dtype=">u8").astype(np.uint64)


def judgement_key(document_id: str, similarity: float) -> int:
    """Equal where the same query was judged with the same document: then their similarity is the same as well."""
    return query_key(f"{document_id}\n{similarity!r}")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:8]


Batch = TypeVar("Batch", bound=Columns)


class Window(Generic[Batch]):
    """Batches in the order in which they came. most: things; seconds: how old they may be."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._batches: deque[Batch] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, batch: Batch) -> None:
        """Add a batch, and let go of what is too much."""
        self._batches.append(batch)
        self._count += len(batch)
        self._drop(self._count - self._most)

    def at(self, now: float) -> list[Batch]:
        """What is in the window at a Unix time, oldest first."""
        self._bring_back(now)
        while self._batches and (old := int(np.searchsorted(self._batches[0].at, now - self._seconds))):
            self._drop(old)
        return list(self._batches)

    def _bring_back(self, now: float) -> None:
        """What a clock that was set back has left ahead would stay, and keep what follows, until the clock is there."""
        for place, batch in enumerate(self._batches):
            if batch.at[-1] > now:
                self._batches[place] = replace(batch, at=np.minimum(batch.at, now))

    def _drop(self, rows: int) -> None:
        while rows > 0:
            first = self._batches.popleft()
            self._count -= len(first)
            if len(first) > rows:
                rest = first.take(slice(rows, None))
                self._batches.appendleft(rest)
                self._count += len(rest)
            rows -= len(first)
