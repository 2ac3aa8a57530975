"""Metadata fields as columns of sorted values, which find the documents that meet a condition without reading any."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Self, overload

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.release.names import BOOLEANS, DATES, NUMBERS, TEXTS
from taugate.retrieval.documents.filters import OneOf, Range, SortKey, instant, sort_key, stored_key
from taugate.retrieval.documents.store import MetadataValue

_MIN_DATE = len('"2024-05-31"')

Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]
MISSING = -1


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
        """Return the first place within the condition's bounds, and the place after the last; empty if last ≤ first."""
        # Only numbers are within the bounds of a condition on numbers.
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
            ascend = all(_is_scalar(following) and key < following for key, following in pairwise(self))
            return _is_scalar(self[0]) and ascend
        except orjson.JSONDecodeError:
            return False


def _is_scalar(key: SortKey) -> bool:
    return isinstance(key[1], str | int | float)


@dataclass(frozen=True)
class Column:
    """A field of N documents with at most one value per document."""

    values: SortedValues  # the V distinct values of the field
    codes: Codes  # (N,) int32 places in `values`; MISSING for documents without a value or with null

    @property
    def starts(self) -> None:
        """None: the codes are one for every document."""
        return None

    def where_one_of(self, condition: OneOf) -> Mask:
        """Return which documents have one of the values that a condition names, (N,) bool."""
        return _accepted(self.values, self.values.places(condition))[self.codes]

    def where_within(self, condition: Range) -> Mask:
        """Return which documents have a value within bounds, (N,) bool."""
        if condition.kind != NUMBERS:
            return _accepted(self.values, self.values.places_within(condition))[self.codes]
        first, last = self.values.interval(condition)
        return (self.codes >= first) & (self.codes < last)

    def keys(self, position: int) -> tuple[SortKey, ...]:
        """Return the sort key of one document's value, empty if it has none."""
        code = int(self.codes[position])
        return () if code == MISSING else (self.values[code],)

    def is_valid(self, documents: int) -> bool:
        """Return whether values and codes, which may be from an untrusted file, are valid for this many documents."""
        return self.codes.shape == (documents,) and _are_places(self.codes, self.values)


@dataclass(frozen=True)
class TagColumn:
    """A field of N documents with any number of values, its tags, per document."""

    values: SortedValues  # the V distinct values of the field
    codes: Codes  # (M,) int32 places in `values`, document by document; a document without a value has one MISSING
    starts: NDArray[np.int64]  # (N + 1,) int64 start of every document's codes, then M

    def where_one_of(self, condition: OneOf) -> Mask:
        """Return which documents have one of the values that a condition names, (N,) bool."""
        # Takes M bytes besides the result.
        accepted = _accepted(self.values, self.values.places(condition))
        mask: Mask = np.logical_or.reduceat(accepted[self.codes], self.starts[:-1])
        return mask

    def where_within(self, condition: Range) -> Mask:
        """Return (N,) False: ranges apply to single values only, so no document meets one."""
        return np.zeros(len(self.starts) - 1, dtype=np.bool_)

    def keys(self, position: int) -> tuple[SortKey, ...]:
        """Return the sort keys of one document's values in ascending order."""
        codes = self.codes[self.starts[position] : self.starts[position + 1]].tolist()
        return tuple(self.values[code] for code in codes if code != MISSING)

    def is_valid(self, documents: int) -> bool:
        """Return whether the arrays, which may be from an untrusted file, are valid for this many documents."""
        starts = self.starts
        if starts.dtype != np.int64 or starts.shape != (documents + 1,) or self.codes.ndim != 1:
            return False
        if starts[0] != 0 or starts[-1] != len(self.codes) or (np.diff(starts) < 1).any():
            return False
        return _are_places(self.codes, self.values)


def _accepted(values: SortedValues, places: NDArray[np.int64]) -> Mask:
    """Return which values are at some places, (V + 1,) bool; the last one is False, for MISSING (−1)."""
    accepted = np.zeros(len(values) + 1, dtype=np.bool_)
    accepted[places] = True
    return accepted


def _are_places(codes: Codes, values: SortedValues) -> bool:
    """Return whether codes are places of valid values, or MISSING."""
    if codes.dtype != np.int32 or not values.is_valid():
        return False
    return bool(codes.min() >= MISSING and codes.max() < len(values))


@dataclass
class ColumnWriter:
    """Collects the values of one field; of equal numbers such as 1 and 1.0, the first is kept."""

    numbers: dict[SortKey, int] = field(default_factory=dict)  # numbers of the distinct values, in order of appearance
    # positions of documents with a value, once per value
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    codes: "array[int]" = field(default_factory=lambda: array("q"))
    has_tags: bool = False  # whether any document has a list

    def append(self, position: int, value: MetadataValue) -> None:
        """Add the field's value in the document at a position; positions must ascend."""
        # A document may have the field twice, its name in two Unicode forms.
        self.has_tags |= isinstance(value, list) or position in self.positions[-1:]
        for key in sort_keys(value):
            self.positions.append(position)
            self.codes.append(self.numbers.setdefault(key, len(self.numbers)))

    def column(self, documents: int) -> Column | TagColumn | None:
        """Return the column for this many documents, None if none has a value."""
        if not self.numbers:
            return None
        keys = sorted(self.numbers)
        ranks = np.empty(len(keys), dtype=np.int32)
        ranks[[self.numbers[key] for key in keys]] = np.arange(len(keys), dtype=np.int32)
        positions, numbers = np.frombuffer(self.positions, dtype=np.int64), np.frombuffer(self.codes, dtype=np.int64)
        if not self.has_tags:
            codes = np.full(documents, MISSING, dtype=np.int32)
            codes[positions] = ranks[numbers]
            return Column(SortedValues.of(keys), codes)
        counts = np.bincount(positions, minlength=documents)
        starts = np.concatenate([[0], np.cumsum(np.maximum(counts, 1))])
        codes = np.full(starts[-1], MISSING, dtype=np.int32)
        before = np.cumsum(counts) - counts  # number of values in preceding documents
        # The place of a value is that of its document plus the number of the document's preceding values.
        codes[starts[positions] + np.arange(len(positions)) - before[positions]] = ranks[numbers]
        return TagColumn(SortedValues.of(keys), codes, starts)


def sort_keys(value: MetadataValue) -> tuple[SortKey, ...]:
    """Return the sort keys of a value for filters: one, one per distinct tag in ascending order, or none."""
    if value is None:
        return ()
    return tuple(sorted({*map(sort_key, value)})) if isinstance(value, list) else (sort_key(value),)
