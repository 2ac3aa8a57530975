"""One field of the metadata, for every document: the place of its value among the distinct ones."""

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.conditions import Condition, Key, Range, Value, key
from taugate.retrieval.documents.values import Values

Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]
MISSING = -1


@dataclass(frozen=True)
class Column:
    """codes: (N,) int32 places in `values`, MISSING where a document has no value (null is none)."""

    values: Values
    codes: Codes

    def where(self, condition: Condition) -> Mask:
        """Which documents meet it, (N,). MISSING is below every place, and reads the last of what is accepted."""
        if isinstance(condition, Range):
            first, last = self.values.interval(condition)
            return (self.codes >= first) & (self.codes < last)
        accepted = np.zeros(len(self.values) + 1, dtype=np.bool_)
        accepted[self.values.places(condition)] = True
        mask: Mask = accepted[self.codes]
        return mask

    def at(self, position: int) -> Key | None:
        """The value of one document."""
        code = int(self.codes[position])
        return None if code == MISSING else self.values[code]

    def whole(self, documents: int) -> bool:
        """Whether every document has a code that stands for something."""
        if self.codes.dtype != np.int32 or self.codes.shape != (documents,) or not self.values.whole():
            return False
        return bool(self.codes.min() >= MISSING and self.codes.max() < len(self.values))


@dataclass
class ColumnWriter:
    """Collects the values of one field; of equal numbers, 1 and 1.0, the first is kept."""

    places: dict[Key, int] = field(default_factory=dict)  # in the order in which they came
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    found: "array[int]" = field(default_factory=lambda: array("q"))

    def append(self, position: int, value: Value) -> None:
        """The value of the document at a position."""
        self.positions.append(position)
        self.found.append(self.places.setdefault(key(value), len(self.places)))

    def column(self, documents: int) -> Column:
        """The column of so many documents."""
        keys = sorted(self.places)
        ranks = np.empty(len(keys), dtype=np.int32)
        ranks[[self.places[each] for each in keys]] = np.arange(len(keys), dtype=np.int32)
        codes = np.full(documents, MISSING, dtype=np.int32)
        codes[np.frombuffer(self.positions, dtype=np.int64)] = ranks[np.frombuffer(self.found, dtype=np.int64)]
        return Column(Values.of(keys), codes)
