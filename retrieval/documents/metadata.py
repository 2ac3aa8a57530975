"""The metadata of all documents by column: which of them a filter means, without reading any."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray
from safetensors.numpy import save

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.documents.filters import KINDS, NUMBERS, Condition, Filter, Key, Range, Value, Values, key
from taugate.retrieval.documents.store import Document
from taugate.storage.tensors import read_tensors

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


# Of all documents together. A column takes 4 bytes a document: so many take a kilobyte, less than a vector of 384.
MOST_FIELDS = 256
_NAMED, _LONGEST_NAME = 16, 40  # known fields that a message lists, and characters of each
_FIELDS, _PARTS = "fields", ("json", "offsets", "codes")


@dataclass(frozen=True)
class Metadata:
    """Columns by field, none where no document has metadata; a pure function of the corpus."""

    columns: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Self:
        """Of documents in the order of their positions."""
        writers: dict[str, ColumnWriter] = {}
        count = 0
        for position, document in enumerate(documents):
            count = position + 1
            for name, value in document.metadata.items():
                if value is not None:
                    writers.setdefault(name, ColumnWriter()).append(position, value)
        return cls({name: writers[name].column(count) for name in sorted(writers)})

    def check(self, wanted: Filter) -> None:
        """Raise InputError where a filter asks for a field that no document has."""
        if unknown := [condition.field for condition in wanted if condition.field not in self.columns]:
            if not self.columns:
                raise InputError("the documents have no metadata; leave it out")
            raise InputError(f"no document has the field {shown(unknown[0])}; there is {self._known()}")

    def check_kinds(self, wanted: Filter) -> None:
        """As `check`; also where a filter asks for a number, say, and the field has none in any document."""
        self.check(wanted)
        for condition in wanted:
            asked = {NUMBERS} if isinstance(condition, Range) else {kind for kind, _ in condition.keys}
            there = self.columns[condition.field].values.kinds()
            if strange := asked - there:
                has = " and ".join(KINDS[kind] for kind in sorted(there))
                raise InputError(f"{shown(condition.field)} holds {has}, and is compared with {KINDS[min(strange)]}")

    def where(self, wanted: Filter) -> Mask:
        """Which documents meet all conditions, of which there is one at least, (N,). Raises InputError."""
        self.check(wanted)
        mask: Mask = np.logical_and.reduce([self.columns[condition.field].where(condition) for condition in wanted])
        return mask

    def save(self, path: Path) -> None:
        """Write arrays, and nothing else, to one safetensors file."""
        arrays: dict[str, NDArray[Any]] = {_FIELDS: np.frombuffer(orjson.dumps([*self.columns]), dtype=np.uint8)}
        for number, column in enumerate(self.columns.values()):
            parts: tuple[NDArray[Any], ...] = (column.values.json, column.values.offsets, column.codes)
            arrays |= {f"{number}.{name}": part for name, part in zip(_PARTS, parts, strict=True)}
        path.write_bytes(save(arrays))

    @classmethod
    def load(cls, path: Path, documents: Sequence[Document]) -> Self:
        """Read what `save` wrote for these documents. Raises ReleaseError when it is anything else."""
        arrays = read_tensors(path)
        names = _names(arrays.get(_FIELDS))
        if not names or {*arrays} != {_FIELDS, *(f"{i}.{part}" for i in range(len(names)) for part in _PARTS)}:
            raise ReleaseError(f"{path}: does not hold columns of metadata; calibrate again")
        columns: dict[str, Column] = {}
        for i, name in enumerate(names):
            json, offsets, codes = (arrays[f"{i}.{part}"] for part in _PARTS)
            columns[name] = Column(Values(json, offsets), codes)
            if not columns[name].whole(len(documents)):
                raise ReleaseError(f"{path}: {shown(name)} is no column of these documents; calibrate again")
        metadata = cls(columns)
        for position in {0, len(documents) // 2, len(documents) - 1}:
            if metadata._at(position) != _keys(documents[position]):
                raise ReleaseError(f"{path}: does not agree with the documents; calibrate again")
        return metadata

    def _at(self, position: int) -> dict[str, Any]:
        found = {name: column.at(position) for name, column in self.columns.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _known(self) -> str:
        names = [*self.columns]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return ", ".join(map(shown, names[:_NAMED])) + more


def shown(name: str) -> str:
    """The name of a field in a message, cut short where it is long."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def _names(array: NDArray[Any] | None) -> list[str]:
    """Names of the fields, none where these are not distinct texts."""
    try:
        names = orjson.loads(b"" if array is None else array.tobytes())
    except orjson.JSONDecodeError:
        return []
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if texts and len({*names}) == len(names) else []


def _keys(document: Document) -> dict[str, Any]:
    return {name: key(value) for name, value in document.metadata.items() if value is not None}
