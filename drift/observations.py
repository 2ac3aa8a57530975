"""What is seen of answered queries and of judgements, in the order in which they came."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taugate.drift.effect import Float64
from taugate.retrieval.vectors.similarity import Float32

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
