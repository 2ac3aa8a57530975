"""Metadata fields as columns of numbers, which find the documents that meet a condition without reading any."""

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import NUMBERS, OneOf, Range, SortKey, sort_key
from taugate.retrieval.documents.sorted_values import SortedValues
from taugate.retrieval.documents.store import MetadataValue

Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]
MISSING = -1


@dataclass(frozen=True)
class Column:
    """A field of N documents with at most one value per document.

    Attributes:
        values: The V distinct values of the field.
        codes: (N,) int32 places in `values`; MISSING for documents without a value or with null.
    """

    values: SortedValues
    codes: Codes

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
    """A field of N documents with any number of values, its tags, per document.

    Attributes:
        values: The V distinct values of the field.
        codes: (M,) int32 places in `values`, document by document; a document without a value has one MISSING.
        starts: (N + 1,) int64 start of every document's codes, then M.
    """

    values: SortedValues
    codes: Codes
    starts: NDArray[np.int64]

    def where_one_of(self, condition: OneOf) -> Mask:
        """Return which documents have one of the values that a condition names, (N,) bool.

        Takes M bytes besides the result.
        """
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
    """Collects the values of one field; of equal numbers such as 1 and 1.0, the first is kept.

    Attributes:
        numbers: Numbers of the distinct values, in order of appearance.
        positions: Positions of documents with a value, once per value.
        codes: Numbers of these values.
        has_tags: Whether any document has a list.
    """

    numbers: dict[SortKey, int] = field(default_factory=dict)
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    codes: "array[int]" = field(default_factory=lambda: array("q"))
    has_tags: bool = False

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
