"""The types of a corpus's metadata fields, and the check of filters against them, for every kind of corpus."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from taugate.errors import InputError
from taugate.retrieval.documents.columns import sort_keys
from taugate.retrieval.documents.dates import instant
from taugate.retrieval.documents.filters import DATES, KINDS, TEXTS, Filter, composed, on_fields
from taugate.retrieval.documents.store import Document

_MAX_LISTED, _MAX_NAME_LENGTH = 16, 40  # fields listed in a message, and characters of a name


@dataclass(frozen=True)
class FieldType:
    """The type of one metadata field.

    Attributes:
        kinds: Kinds of its values: at least one of BOOLEANS, NUMBERS, TEXTS and DATES.
        has_lists: Whether any document has a list of strings.
    """

    kinds: frozenset[int]
    has_lists: bool = False


@dataclass(frozen=True)
class FieldTypes:
    """The metadata fields of a corpus with at least one value; implements Fields.

    Attributes:
        by_name: Types of the fields, sorted by name.
    """

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


def shown(name: str) -> str:
    """Return the name of a field for a message, shortened if it is long."""
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"
