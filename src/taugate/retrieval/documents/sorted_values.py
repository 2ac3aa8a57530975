"""The distinct values of one metadata field in order, stored as bytes without a Python object per value."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Self, overload

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.retrieval.documents.dates import instant
from taugate.retrieval.documents.filters import BOOLEANS, DATES, NUMBERS, TEXTS, OneOf, Range, SortKey, stored_key

_MIN_DATE = len('"2024-05-31"')


class SortedValues(Sequence[SortKey]):
    """V sort keys in ascending order: booleans, numbers, texts.

    Attributes:
        json: (bytes,) uint8 values as JSON scalars in sequence.
        offsets: (V + 1,) int64 start of every value, then the end of the last one.
    """

    def __init__(self, json: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.json, self.offsets = json, offsets
        # These views read a number in 40 ns, five times as fast as NumPy.
        self._json, self._offsets = np.ascontiguousarray(json).data, np.ascontiguousarray(offsets).data

    @classmethod
    def of(cls, keys: Iterable[SortKey]) -> Self:
        """Store distinct ascending sort keys."""
        parts = [orjson.dumps(value) for _, value in keys]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(parts), dtype=np.uint8), offsets)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> SortKey: ...
    @overload
    def __getitem__(self, place: slice) -> list[SortKey]: ...
    def __getitem__(self, place: int | slice) -> SortKey | list[SortKey]:
        """Return the key at a place, or the keys of a slice."""
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        return stored_key(orjson.loads(self._json[self._offsets[place] : self._offsets[place + 1]]))

    def kinds(self) -> set[int]:
        """Return which of BOOLEANS, NUMBERS, TEXTS and DATES occur."""
        numbers, texts = bisect_left(self, (NUMBERS, -np.inf)), bisect_left(self, (TEXTS, ""))
        counts = {BOOLEANS: numbers, NUMBERS: texts - numbers, TEXTS: len(self) - texts, DATES: len(self._dates[0])}
        return {kind for kind, count in counts.items() if count}

    def places(self, condition: OneOf) -> NDArray[np.int64]:
        """Return the places of those values of the condition that occur, (p,) int64."""
        # A value beyond the last takes the same steps as any other, so that timing does not reveal which values exist.
        candidates = ((min(bisect_left(self, key), len(self) - 1), key) for key in condition.keys)
        places = [place for place, key in candidates if self[place] == key]
        return np.array(places, dtype=np.int64)

    def places_within(self, condition: Range) -> NDArray[np.int64]:
        """Return the places of the dates within the condition's bounds, (p,) int64."""
        places, moments = self._dates
        return places[condition.holds(moments)]

    @cached_property
    def _dates(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Places of the texts that are ISO dates, (t,) int64, and their moments in seconds since 1970, (t,) float64."""
        first = bisect_left(self, (TEXTS, "0"))
        starts, ends = self.offsets[first:-1], self.offsets[first + 1 :]
        long_enough = first + np.flatnonzero(ends - starts >= _MIN_DATE)
        starts = self.offsets[long_enough]
        hyphens = (self.json[starts + 5] == ord("-")) & (
            self.json[starts + 8] == ord("-")
        )  # offsets include the opening quote
        places, moments = list[int](), list[float]()
        for place in long_enough[hyphens].tolist():
            _, value = self[place]
            moment = instant(value) if isinstance(value, str) else None
            if moment is not None:
                places.append(place)
                moments.append(moment)
        return np.array(places, dtype=np.int64), np.array(moments, dtype=np.float64)

    def interval(self, condition: Range) -> tuple[int, int]:
        """Return the first place within the condition's bounds, and the place after the last; empty if last ≤ first.

        Only numbers are within the bounds of a condition on numbers.
        """
        first, last = bisect_left(self, (NUMBERS, -np.inf)), bisect_left(self, (TEXTS, ""))
        if condition.gt is not None:
            first = max(first, bisect_right(self, (NUMBERS, condition.gt)))
        if condition.gte is not None:
            first = max(first, bisect_left(self, (NUMBERS, condition.gte)))
        if condition.lt is not None:
            last = min(last, bisect_left(self, (NUMBERS, condition.lt)))
        if condition.lte is not None:
            last = min(last, bisect_right(self, (NUMBERS, condition.lte)))
        return first, last

    def is_valid(self) -> bool:
        """Return whether this is a result of `of`: consecutive JSON scalars, strictly ascending. Reads every value."""
        offsets = self.offsets
        if self.json.dtype != np.uint8 or self.json.ndim != 1 or offsets.dtype != np.int64 or offsets.ndim != 1:
            return False
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(self.json) or (np.diff(offsets) <= 0).any():
            return False
        try:
            return _is_scalar(self[0]) and all(_ascends(key, following) for key, following in pairwise(self))
        except orjson.JSONDecodeError:
            return False


def _ascends(key: SortKey, following: SortKey) -> bool:
    return _is_scalar(following) and key < following


def _is_scalar(key: SortKey) -> bool:
    return isinstance(key[1], str | int | float)
