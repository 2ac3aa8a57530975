"""The metadata of all documents by column: which documents meet a filter, without reading any of them."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.documents.filters import KINDS, NUMBERS, Condition, Filter, Range, SortKey, Value, sort_key
from taugate.retrieval.documents.sorted_values import SortedValues
from taugate.retrieval.documents.store import Document
from taugate.storage.tensors import Arrays, read_tensors, write_tensors

Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]
MISSING = -1
_MAX_LISTED, _MAX_NAME_LENGTH = 16, 40  # known fields that a message lists, and characters of each
_FIELDS, _PARTS = "fields", ("json", "offsets", "codes")


@dataclass(frozen=True)
class Column:
    """One field of N documents.

    values: the distinct values of the field. codes: (N,) int32 places in `values`, MISSING where a document has no
    value; null counts as none.
    """

    values: SortedValues
    codes: Codes

    def where(self, condition: Condition) -> Mask:
        """Return which documents meet a condition on the field, (N,) bool."""
        if isinstance(condition, Range):
            first, last = self.values.interval(condition)
            return (self.codes >= first) & (self.codes < last)
        accepted = np.zeros(len(self.values) + 1, dtype=np.bool_)
        accepted[self.values.places(condition)] = True  # the last place stays False: MISSING, −1, reads it
        mask: Mask = accepted[self.codes]
        return mask

    def at(self, position: int) -> SortKey | None:
        """Return the sort key of one document's value, None where it has none."""
        code = int(self.codes[position])
        return None if code == MISSING else self.values[code]

    def is_valid(self, documents: int) -> bool:
        """Tell whether values and codes, which may come from any file, are those of so many documents."""
        if self.codes.dtype != np.int32 or self.codes.shape != (documents,) or not self.values.is_valid():
            return False
        return bool(self.codes.min() >= MISSING and self.codes.max() < len(self.values))


@dataclass
class ColumnWriter:
    """Collects the values of one field; of equal numbers, 1 and 1.0, the first is kept.

    numbers: of each distinct value, in the order in which they came. positions: of the documents that have a value.
    found: the number of each of their values.
    """

    numbers: dict[SortKey, int] = field(default_factory=dict)
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    found: "array[int]" = field(default_factory=lambda: array("q"))

    def append(self, position: int, value: Value) -> None:
        """Add the value of the document at a position."""
        self.positions.append(position)
        self.found.append(self.numbers.setdefault(sort_key(value), len(self.numbers)))

    def column(self, documents: int) -> Column:
        """Return the column of so many documents."""
        keys = sorted(self.numbers)
        ranks = np.empty(len(keys), dtype=np.int32)
        ranks[[self.numbers[each] for each in keys]] = np.arange(len(keys), dtype=np.int32)
        codes = np.full(documents, MISSING, dtype=np.int32)
        codes[np.frombuffer(self.positions, dtype=np.int64)] = ranks[np.frombuffer(self.found, dtype=np.int64)]
        return Column(SortedValues.of(keys), codes)


@dataclass(frozen=True)
class Metadata:
    """The metadata of a corpus; the same for the same documents.

    columns: by field, none where no document has metadata.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Self:
        """Collect the metadata of documents, which come in the order of their positions."""
        writers: dict[str, ColumnWriter] = {}
        count = 0
        for position, document in enumerate(documents):
            count = position + 1
            for name, value in document.metadata.items():
                if value is not None:
                    writers.setdefault(name, ColumnWriter()).append(position, value)
        return cls({name: writers[name].column(count) for name in sorted(writers)})

    def check(self, wanted: Filter) -> None:
        """Raise InputError where a filter names a field that no document has."""
        if unknown := [condition.field for condition in wanted if condition.field not in self.columns]:
            if not self.columns:
                raise InputError("the documents have no metadata; leave it out")
            raise InputError(f"no document has the field {shown(unknown[0])}; there is {self._known()}")

    def check_kinds(self, wanted: Filter) -> None:
        """Raise InputError as `check`, and where a filter compares a field with a kind of value that it never has."""
        self.check(wanted)
        for condition in wanted:
            asked = {NUMBERS} if isinstance(condition, Range) else {kind for kind, _ in condition.keys}
            there = self.columns[condition.field].values.kinds()
            if strange := asked - there:
                has = " and ".join(KINDS[kind] for kind in sorted(there))
                raise InputError(f"{shown(condition.field)} holds {has}, and is compared with {KINDS[min(strange)]}")

    def where(self, wanted: Filter) -> Mask:
        """Return which documents meet a filter of one condition or more, (N,) bool. Raises InputError as `check`."""
        self.check(wanted)
        mask: Mask = np.logical_and.reduce([self.columns[condition.field].where(condition) for condition in wanted])
        return mask

    def save(self, path: Path) -> None:
        """Write the columns to one safetensors file. Raises OSError."""
        arrays: Arrays = {_FIELDS: np.frombuffer(orjson.dumps([*self.columns]), dtype=np.uint8)}
        for number, column in enumerate(self.columns.values()):
            parts: tuple[NDArray[Any], ...] = (column.values.json, column.values.offsets, column.codes)
            arrays |= {f"{number}.{name}": part for name, part in zip(_PARTS, parts, strict=True)}
        write_tensors(path, arrays)

    @classmethod
    def load(cls, path: Path, documents: Sequence[Document]) -> Self:
        """Read what `save` wrote.

        path: the file. documents: that it has to be about, of which three are compared with it. Raises ReleaseError
        where it holds anything else.
        """
        arrays = read_tensors(path)
        names = _parse_names(arrays.get(_FIELDS))
        if not names or {*arrays} != {_FIELDS, *(f"{i}.{part}" for i in range(len(names)) for part in _PARTS)}:
            raise ReleaseError(f"{path}: does not hold columns of metadata; calibrate again")
        columns: dict[str, Column] = {}
        for i, name in enumerate(names):
            json, offsets, codes = (arrays[f"{i}.{part}"] for part in _PARTS)
            columns[name] = Column(SortedValues(json, offsets), codes)
            if not columns[name].is_valid(len(documents)):
                raise ReleaseError(f"{path}: {shown(name)} is no column of these documents; calibrate again")
        metadata = cls(columns)
        for position in {0, len(documents) // 2, len(documents) - 1}:
            if metadata._at(position) != _sort_keys(documents[position]):
                raise ReleaseError(f"{path}: does not agree with the documents; calibrate again")
        return metadata

    def _at(self, position: int) -> dict[str, Any]:
        found = {name: column.at(position) for name, column in self.columns.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _known(self) -> str:
        names = [*self.columns]
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        return ", ".join(map(shown, names[:_MAX_LISTED])) + more


def shown(name: str) -> str:
    """Return the name of a field for a message, cut short where it is long."""
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"


def _parse_names(array: NDArray[Any] | None) -> list[str]:
    """Parse the names of the fields; none where they are not distinct strings."""
    try:
        names = orjson.loads(b"" if array is None else array.tobytes())
    except orjson.JSONDecodeError:
        return []
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if texts and len({*names}) == len(names) else []


def _sort_keys(document: Document) -> dict[str, Any]:
    return {name: sort_key(value) for name, value in document.metadata.items() if value is not None}
