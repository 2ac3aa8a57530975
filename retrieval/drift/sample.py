"""A random sample of what one replica saw, small enough to be shared, and what all replicas saw together.

A sample of s out of n has a share p within ±1.96 · √(p (1 − p) / s): that is ±.011 for a COE of .93 and the 2,000 that
are kept.
"""

from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from retrieval.drift.observations import Columns

MOST = 2000
_COUNT = "count"
Seen = TypeVar("Seen", bound=Columns)


class Sample(Generic[Seen]):
    """rows: of the things seen all or some, in random order; count: how many they stand for."""

    def __init__(self, rows: Seen, count: int) -> None:
        self.rows, self.count = rows, count

    @classmethod
    def of(cls, seen: Seen, rng: np.random.Generator) -> Self:
        """Of all of them."""
        return cls(seen.take(rng.permutation(len(seen))), len(seen))

    def pack(self) -> bytes:
        """As safetensors: at most MOST rows, each with the same probability, and without what they are known by."""
        columns = _shared(self.rows.take(slice(MOST))) | {_COUNT: np.array([self.count])}
        return save({name: np.ascontiguousarray(column) for name, column in columns.items()})

    @classmethod
    def unpack(cls, packed: bytes, like: Seen) -> Self:
        """What `pack` made of rows that look `like` these. Raises ValueError for anything else."""
        try:
            arrays = load(packed)
        except (SafetensorError, KeyError, TypeError, AttributeError) as error:
            raise ValueError("no sample") from error
        count = arrays.pop(_COUNT, np.zeros(0))
        wanted = _shared(like)
        whole = {*arrays} == {*wanted} and count.shape == (1,) and count.dtype == np.int64
        if not whole or any(
            array.ndim == 0
            or len(array) != len(arrays["at"])
            or (array.dtype, array.shape[1:]) != (wanted[name].dtype, wanted[name].shape[1:])
            or not np.isfinite(array).all()
            for name, array in arrays.items()
        ):
            raise ValueError("no sample of this release")
        if not len(arrays["at"]) <= count[0]:
            raise ValueError("a sample that is larger than what it is of")
        keys = np.zeros(len(arrays["at"]), dtype=np.uint64)
        return cls(type(like)(key=keys, **arrays), int(count[0]))


def _shared(rows: Columns) -> dict[str, NDArray[Any]]:
    """Columns that others need: not which queries they are of."""
    return {name: column for name, column in rows.columns().items() if name != "key"}


def merged(samples: Sequence[Sample[Seen]]) -> Seen:
    """A random sample of all that the samples stand for: of each as many as its share; at least one, none empty.

    As large as it can be before one of them has too few.
    """
    total = sum(sample.count for sample in samples)
    size = min(len(sample.rows) * total / sample.count for sample in samples)
    parts = [sample.rows.take(slice(round(size * sample.count / total))) for sample in samples]
    return type(parts[0]).joined(parts)
