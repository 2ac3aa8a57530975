"""The metadata of all documents by column, its field types, and the check of filters against them."""

import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from unicodedata import is_normalized

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.errors import InputError, ReleaseError
from taugate.release.names import DATES, KINDS, TEXTS, shown
from taugate.retrieval.documents.columns import Column, ColumnWriter, Mask, SortedValues, TagColumn, sort_keys
from taugate.retrieval.documents.filters import Filter, FilterRules, Range, SortKey, composed, instant, on_fields
from taugate.retrieval.documents.store import Document, MetadataValue
from taugate.storage.tensors import Arrays, read_tensors, write_tensors

_MAX_LISTED = 16  # fields listed in a message

_FIELDS, _PARTS, _TAG_PART = "fields", ("json", "offsets", "codes"), "starts"


@dataclass(frozen=True)
class FieldType:
    """The type of one metadata field."""

    kinds: frozenset[int]  # kinds of its values: at least one of BOOLEANS, NUMBERS, TEXTS and DATES
    has_lists: bool = False  # whether any document has a list of strings


@dataclass(frozen=True)
class FieldTypes:
    """The metadata fields of a corpus with at least one value; implements Fields."""

    by_name: Mapping[str, FieldType] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Self:
        """Collect the types of the fields from documents."""
        collected = FieldTypesWriter()
        for document in documents:
            collected.append(document)
        return cls(collected.types().by_name)

    def check(self, query_filter: Filter) -> None:
        """Raise InputError if a filter names a field that no document has, or gives bounds for lists of strings."""
        conditions = [*on_fields(query_filter)]
        if unknown := [condition.field for condition in conditions if condition.field not in self.by_name]:
            raise InputError(self._unknown(unknown[0]))
        for condition in conditions:
            if not condition.keys and self.by_name[condition.field].has_lists:
                raise InputError(f"{shown(condition.field)} holds lists of strings, which have no order; name a string")

    def check_kinds(self, query_filter: Filter) -> None:
        """Raise InputError like `check`, and if a filter compares a field with a kind of value that it never has."""
        self.check(query_filter)
        for condition in on_fields(query_filter):
            kinds = self.by_name[condition.field].kinds
            if unknown_kinds := condition.kinds - kinds:
                shown_kinds = kinds - {TEXTS} if DATES in kinds else kinds
                has = " and ".join(KINDS[kind] for kind in sorted(shown_kinds))
                raise InputError(
                    f"{shown(condition.field)} holds {has}, but the filter compares it with {KINDS[min(unknown_kinds)]}"
                )

    def _unknown(self, name: str) -> str:
        names = [*self.by_name]
        if not names:
            return "the documents have no metadata; remove the filter"
        remainder = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        fields = ", ".join(map(shown, names[:_MAX_LISTED])) + remainder
        return f"no document has the field {shown(name)}; the fields are {fields}"


class FieldTypesWriter:
    """Collects the types of fields from one document at a time, without keeping documents."""

    def __init__(self) -> None:
        self._kinds: defaultdict[str, set[int]] = defaultdict(set)
        self._lists: set[str] = set()

    def append(self, document: Document) -> None:
        """Add the fields of a document."""
        for own_name, value in document.metadata.items():
            name = composed(own_name)
            kinds = self._kinds[name]
            kinds.update(kind for kind, _ in sort_keys(value))
            texts = value if isinstance(value, list) else [value]
            if DATES not in kinds and any(isinstance(text, str) and instant(text) is not None for text in texts):
                kinds.add(DATES)
            if isinstance(value, list):
                self._lists.add(name)

    def types(self) -> FieldTypes:
        """Return the types so far, without fields that have only null and empty lists."""
        return FieldTypes(
            {
                name: FieldType(frozenset(kinds), name in self._lists)
                for name, kinds in sorted(self._kinds.items())
                if kinds
            }
        )


@dataclass(frozen=True)
class Metadata:
    """The metadata of a corpus, which depends only on its documents."""

    # columns by field; empty if no document has metadata
    columns: Mapping[str, Column | TagColumn] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Self:
        """Collect the metadata of documents, given in the order of their positions."""
        writers: dict[str, ColumnWriter] = {}
        count = 0
        for position, document in enumerate(documents):
            count = position + 1
            for name, value in document.metadata.items():
                if value is not None:
                    writers.setdefault(composed(name), ColumnWriter()).append(position, value)
        columns = ((name, writers[name].column(count)) for name in sorted(writers))
        return cls({name: column for name, column in columns if column is not None})

    @cached_property
    def types(self) -> FieldTypes:
        """The types of the fields."""
        return FieldTypes(
            {
                name: FieldType(frozenset(column.values.kinds()), column.starts is not None)
                for name, column in self.columns.items()
            }
        )

    def check(self, query_filter: Filter) -> None:
        """See FieldTypes.check."""
        self.types.check(query_filter)

    def check_kinds(self, query_filter: Filter) -> None:
        """See FieldTypes.check_kinds."""
        self.types.check_kinds(query_filter)

    def where(self, query_filter: Filter) -> Mask:
        """Return which documents meet a filter with at least one condition, (N,) bool."""
        self.check(query_filter)
        return self._all_hold(query_filter)

    def _all_hold(self, query_filter: Filter) -> Mask:
        columns = self.columns
        rules = FilterRules[Mask](
            one_of=lambda condition: columns[condition.field].where_one_of(condition),
            within=lambda condition: columns[condition.field].where_within(condition),
            negate=np.logical_not,
            any_of=np.logical_or.reduce,
            all_of=np.logical_and.reduce,
        )
        return rules.all_hold(query_filter)

    def save(self, path: Path) -> None:
        """Write the columns to one safetensors file."""
        arrays: Arrays = {_FIELDS: np.frombuffer(orjson.dumps([*self.columns]), dtype=np.uint8)}
        for number, column in enumerate(self.columns.values()):
            parts: tuple[NDArray[Any], ...] = (column.values.json, column.values.offsets, column.codes)
            arrays |= {f"{number}.{name}": part for name, part in zip(_PARTS, parts, strict=True)}
            if column.starts is not None:
                arrays[f"{number}.{_TAG_PART}"] = column.starts
        write_tensors(path, arrays)

    @classmethod
    def load(cls, path: Path, documents: Sequence[Document]) -> Self:
        """Read the file that `save` wrote."""
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
                raise ReleaseError(f"{path}: {shown(name)} is not a column of these documents; calibrate again")
        if not all(map(_is_composed, columns.items())):  # as earlier versions wrote it
            return cls.of(documents)
        metadata = cls(columns)
        for position in {0, len(documents) // 2, len(documents) - 1}:
            stored = {name: keys for name, column in columns.items() if (keys := column.keys(position))}
            if stored != _keys(documents[position]):
                raise ReleaseError(f"{path}: does not match the documents; calibrate again")
        return metadata


def holds(query_filter: Filter, values: Mapping[str, MetadataValue]) -> bool:
    """Return whether the metadata of one document meets a filter, like `Metadata.where` for all documents."""
    by_field: defaultdict[str, list[MetadataValue]] = defaultdict(list)
    for name, value in values.items():
        by_field[composed(name)].append(value)
    rules = FilterRules[bool](
        one_of=lambda condition: any({*sort_keys(value)} & {*condition.keys} for value in by_field[condition.field]),
        within=lambda condition: any(_is_within(condition, value) for value in by_field[condition.field]),
        negate=operator.not_,
        any_of=any,
        all_of=all,
    )
    return rules.all_hold(query_filter)


def _is_within(condition: Range, value: MetadataValue) -> bool:
    if condition.kind == DATES:
        moment = instant(value) if isinstance(value, str) else None
        return moment is not None and bool(condition.holds(np.array(moment)))
    first, last = SortedValues.of([*sort_keys(value)]).interval(condition)
    return last > first


def _parse_names(array: NDArray[Any] | None) -> list[str]:
    """Parse the names of the fields; empty unless they are distinct strings."""
    try:
        names = orjson.loads(b"" if array is None else array.tobytes())
    except orjson.JSONDecodeError:
        return []
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if texts and len({*names}) == len(names) else []


def _keys(document: Document) -> dict[str, tuple[SortKey, ...]]:
    """Return the sort keys of a document's values by field."""
    fields = Metadata.of([document]).columns
    return {name: column.keys(0) for name, column in fields.items()}


def _is_composed(named: tuple[str, Column | TagColumn]) -> bool:
    """Return whether the name of a column and its texts are in composed form."""
    name, column = named
    return all(is_normalized("NFC", text) for text in (name, column.values.json.tobytes().decode()))
