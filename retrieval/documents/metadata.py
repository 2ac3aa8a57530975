"""The metadata of all documents by column: which documents meet a filter, without reading any of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.documents.columns import Column, ColumnWriter, Mask, TagColumn, sort_keys
from taugate.retrieval.documents.filters import (
    KINDS,
    NUMBERS,
    AnyOf,
    Condition,
    Filter,
    Not,
    Range,
    SortKey,
    on_fields,
)
from taugate.retrieval.documents.sorted_values import SortedValues
from taugate.retrieval.documents.store import Document, MetadataValue
from taugate.storage.tensors import Arrays, read_tensors, write_tensors

_MAX_LISTED, _MAX_NAME_LENGTH = 16, 40  # known fields that a message lists, and characters of each
_FIELDS, _PARTS, _TAG_PART = "fields", ("json", "offsets", "codes"), "starts"


@dataclass(frozen=True)
class Metadata:
    """The metadata of a corpus; the same for the same documents.

    columns: by field, none where no document has metadata.
    """

    columns: Mapping[str, Column | TagColumn] = field(default_factory=dict)

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
        columns = ((name, writers[name].column(count)) for name in sorted(writers))
        return cls({name: column for name, column in columns if column is not None})

    def check(self, wanted: Filter) -> None:
        """Raise InputError where a filter names a field that no document has, or bounds for lists of strings."""
        check_fields(wanted, self.columns)
        for condition in on_fields(wanted):
            if isinstance(condition, Range) and isinstance(self.columns[condition.field], TagColumn):
                raise InputError(f"{shown(condition.field)} holds lists of strings, which have no order; name a string")

    def check_kinds(self, wanted: Filter) -> None:
        """Raise InputError as `check`, and where a filter compares a field with a kind of value that it never has."""
        self.check(wanted)
        for condition in on_fields(wanted):
            asked = {NUMBERS} if isinstance(condition, Range) else {kind for kind, _ in condition.keys}
            there = self.columns[condition.field].values.kinds()
            if strange := asked - there:
                has = " and ".join(KINDS[kind] for kind in sorted(there))
                raise InputError(f"{shown(condition.field)} holds {has}, and is compared with {KINDS[min(strange)]}")

    def where(self, wanted: Filter) -> Mask:
        """Return which documents meet a filter of one condition or more, (N,) bool. Raises InputError as `check`."""
        self.check(wanted)
        return self._all_hold(wanted)

    def _all_hold(self, wanted: Filter) -> Mask:
        mask: Mask = np.logical_and.reduce([self._holds(condition) for condition in wanted])
        return mask

    def _holds(self, condition: Condition) -> Mask:
        if isinstance(condition, Not):
            return ~self._all_hold(condition.negated)
        if isinstance(condition, AnyOf):
            mask: Mask = np.logical_or.reduce([self._all_hold(each) for each in condition.filters])
            return mask
        return self.columns[condition.field].where(condition)

    def save(self, path: Path) -> None:
        """Write the columns to one safetensors file. Raises OSError."""
        arrays: Arrays = {_FIELDS: np.frombuffer(orjson.dumps([*self.columns]), dtype=np.uint8)}
        for number, column in enumerate(self.columns.values()):
            parts: tuple[NDArray[Any], ...] = (column.values.json, column.values.offsets, column.codes)
            arrays |= {f"{number}.{name}": part for name, part in zip(_PARTS, parts, strict=True)}
            if isinstance(column, TagColumn):
                arrays[f"{number}.{_TAG_PART}"] = column.starts
        write_tensors(path, arrays)

    @classmethod
    def load(cls, path: Path, documents: Sequence[Document]) -> Self:
        """Read what `save` wrote.

        path: the file. documents: that it has to be about, of which three are compared with it. Raises ReleaseError
        where it holds anything else.
        """
        arrays = read_tensors(path)
        names = _parse_names(arrays.get(_FIELDS))
        needed = {_FIELDS, *(f"{i}.{part}" for i in range(len(names)) for part in _PARTS)}
        if not names or not needed <= {*arrays} <= needed | {f"{i}.{_TAG_PART}" for i in range(len(names))}:
            raise ReleaseError(f"{path}: does not hold columns of metadata; calibrate again")
        columns: dict[str, Column | TagColumn] = {}
        for i, name in enumerate(names):
            json, offsets, codes = (arrays[f"{i}.{part}"] for part in _PARTS)
            starts, values = arrays.get(f"{i}.{_TAG_PART}"), SortedValues(json, offsets)
            columns[name] = Column(values, codes) if starts is None else TagColumn(values, codes, starts)
            if not columns[name].is_valid(len(documents)):
                raise ReleaseError(f"{path}: {shown(name)} is no column of these documents; calibrate again")
        metadata = cls(columns)
        for position in {0, len(documents) // 2, len(documents) - 1}:
            found = {name: keys for name, column in columns.items() if (keys := column.keys(position))}
            if found != _keys(documents[position]):
                raise ReleaseError(f"{path}: does not agree with the documents; calibrate again")
        return metadata


def check_fields(wanted: Filter, names: Collection[str]) -> None:
    """Raise InputError where a filter names a field that no document has; names: of the fields that there are."""
    if unknown := [condition.field for condition in on_fields(wanted) if condition.field not in names]:
        if not names:
            raise InputError("the documents have no metadata; leave it out")
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        known = ", ".join(map(shown, [*names][:_MAX_LISTED])) + more
        raise InputError(f"no document has the field {shown(unknown[0])}; there is {known}")


def holds(wanted: Filter, values: Mapping[str, MetadataValue]) -> bool:
    """Tell whether the metadata of one document meets a filter, as `Metadata.where` has it of all."""
    return all(_holds_of_one(condition, values) for condition in wanted)


def _holds_of_one(condition: Condition, values: Mapping[str, MetadataValue]) -> bool:
    if isinstance(condition, Not):
        return not holds(condition.negated, values)
    if isinstance(condition, AnyOf):
        return any(holds(each, values) for each in condition.filters)
    keys = sort_keys(values.get(condition.field))
    if isinstance(condition, Range):
        alone = SortedValues.of(list(keys))
        first, last = alone.interval(condition)
        return last > first
    return not {*keys}.isdisjoint(condition.keys)


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


def _keys(document: Document) -> dict[str, tuple[SortKey, ...]]:
    """Return what filters compare a document's values by, for each field that it has."""
    return {name: keys for name, value in document.metadata.items() if (keys := sort_keys(value))}
