"""One field of the metadata of all documents, as numbers: which documents meet a condition, without reading any."""

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import NUMBERS, FieldCondition, Range, SortKey, sort_key
from taugate.retrieval.documents.sorted_values import SortedValues
from taugate.retrieval.documents.store import MetadataValue

Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]
MISSING = -1


@dataclass(frozen=True)
class Column:
    """A field of N documents, each of which has one value or none.

    Attributes:
        values: The V distinct values of the field.
        codes: (N,) int32 places in `values`, MISSING where a document has no value; null counts as none.
    """

    values: SortedValues
    codes: Codes

    def where(self, condition: FieldCondition) -> Mask:
        """Return which documents meet a condition on the field, (N,) bool."""
        if isinstance(condition, Range) and condition.kind == NUMBERS:
            first, last = self.values.interval(condition)
            return (self.codes >= first) & (self.codes < last)
        accepted = np.zeros(len(self.values) + 1, dtype=np.bool_)
        accepted[self._places(condition)] = True  # the last place stays False: MISSING, −1, reads it
        mask: Mask = accepted[self.codes]
        return mask

    def _places(self, condition: FieldCondition) -> NDArray[np.int64]:
        if isinstance(condition, Range):
            return self.values.places_within(condition)
        return self.values.places(condition)

    def keys(self, position: int) -> tuple[SortKey, ...]:
        """Return the sort key of one document's value, none where it has no value."""
        code = int(self.codes[position])
        return () if code == MISSING else (self.values[code],)

    def is_valid(self, documents: int) -> bool:
        """Tell whether values and codes, which may come from any file, are those of so many documents."""
        return self.codes.shape == (documents,) and _are_places(self.codes, self.values)


@dataclass(frozen=True)
class TagColumn:
    """A field of N documents, each of which has any number of values: its tags.

    Attributes:
        values: The V distinct values of the field.
        codes: (M,) int32 places in `values`, those of the first document's values, then those of the second's, and so
            on; a document without a value has MISSING alone.
        starts: (N + 1,) int64, where the codes of each document begin, and where those of the last one end.
    """

    values: SortedValues
    codes: Codes
    starts: NDArray[np.int64]

    def where(self, condition: FieldCondition) -> Mask:
        """Return which documents have one of the values that a condition names, (N,) bool.

        Takes M bytes beside the result. Bounds are for single values, so no document meets a range.
        """
        if isinstance(condition, Range):
            return np.zeros(len(self.starts) - 1, dtype=np.bool_)
        accepted = np.zeros(len(self.values) + 1, dtype=np.bool_)
        accepted[self.values.places(condition)] = True  # the last place stays False: MISSING, −1, reads it
        mask: Mask = np.logical_or.reduceat(accepted[self.codes], self.starts[:-1])
        return mask

    def keys(self, position: int) -> tuple[SortKey, ...]:
        """Return the sort keys of one document's values in ascending order."""
        codes = self.codes[self.starts[position] : self.starts[position + 1]].tolist()
        return tuple(self.values[code] for code in codes if code != MISSING)

    def is_valid(self, documents: int) -> bool:
        """Tell whether values, codes and starts, which may come from any file, are those of so many documents."""
        starts = self.starts
        if starts.dtype != np.int64 or starts.shape != (documents + 1,) or self.codes.ndim != 1:
            return False
        if starts[0] != 0 or starts[-1] != len(self.codes) or (np.diff(starts) < 1).any():
            return False
        return _are_places(self.codes, self.values)


def _are_places(codes: Codes, values: SortedValues) -> bool:
    """Tell whether codes are places of valid values, or MISSING."""
    if codes.dtype != np.int32 or not values.is_valid():
        return False
    return bool(codes.min() >= MISSING and codes.max() < len(values))


@dataclass
class ColumnWriter:
    """Collects the values of one field; of equal numbers, 1 and 1.0, the first is kept.

    Attributes:
        numbers: Of each distinct value, in the order in which they came.
        positions: Of the documents that have a value, once for each of their values.
        found: The numbers of these values.
        has_tags: Whether any document has a list.
    """

    numbers: dict[SortKey, int] = field(default_factory=dict)
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    found: "array[int]" = field(default_factory=lambda: array("q"))
    has_tags: bool = False

    def append(self, position: int, value: MetadataValue) -> None:
        """Add what the document at a position has in the field; documents come in the order of their positions."""
        self.has_tags |= isinstance(value, list)
        for key in sort_keys(value):
            self.positions.append(position)
            self.found.append(self.numbers.setdefault(key, len(self.numbers)))

    def column(self, documents: int) -> Column | TagColumn | None:
        """Return the column of so many documents, None where none of them has a value."""
        if not self.numbers:
            return None
        keys = sorted(self.numbers)
        ranks = np.empty(len(keys), dtype=np.int32)
        ranks[[self.numbers[each] for each in keys]] = np.arange(len(keys), dtype=np.int32)
        positions, found = np.frombuffer(self.positions, dtype=np.int64), np.frombuffer(self.found, dtype=np.int64)
        if not self.has_tags:
            codes = np.full(documents, MISSING, dtype=np.int32)
            codes[positions] = ranks[found]
            return Column(SortedValues.of(keys), codes)
        counts = np.bincount(positions, minlength=documents)
        starts = np.concatenate([[0], np.cumsum(np.maximum(counts, 1))])
        codes = np.full(starts[-1], MISSING, dtype=np.int32)
        before = np.cumsum(counts) - counts  # values of the documents before
        # The place of each value is that of its document, plus the number of the document's values before it.
        codes[starts[positions] + np.arange(len(positions)) - before[positions]] = ranks[found]
        return TagColumn(SortedValues.of(keys), codes, starts)


def sort_keys(value: MetadataValue) -> tuple[SortKey, ...]:
    """Return what filters compare a value by: one sort key, one for each distinct tag in ascending order, or none."""
    if value is None:
        return ()
    return tuple(sorted({*map(sort_key, value)})) if isinstance(value, list) else (sort_key(value),)
