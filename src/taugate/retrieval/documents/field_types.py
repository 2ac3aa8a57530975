"""What the metadata fields of a corpus hold, and which filters do not fit that: one check, here and over an engine."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from taugate.errors import InputError
from taugate.retrieval.documents.columns import sort_keys
from taugate.retrieval.documents.dates import instant
from taugate.retrieval.documents.filters import DATES, KINDS, TEXTS, Filter, Range, on_fields
from taugate.retrieval.documents.store import Document

_MAX_LISTED, _MAX_NAME_LENGTH = 16, 40  # known fields that a message lists, and characters of each


@dataclass(frozen=True)
class FieldType:
    """What the documents have in one metadata field.

    Attributes:
        kinds: Those of its values, one or more of BOOLEANS, NUMBERS, TEXTS and DATES.
        has_lists: Whether any document has a list of strings.
    """

    kinds: frozenset[int]
    has_lists: bool = False


@dataclass(frozen=True)
class FieldTypes:
    """The metadata fields of a corpus that any document has a value of; a Fields.

    Attributes:
        by_name: Their types, sorted by name.
    """

    by_name: Mapping[str, FieldType] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Self:
        """Collect the types of documents, one by one."""
        collected = FieldTypesWriter()
        for document in documents:
            collected.append(document)
        return cls(collected.types().by_name)

    def check(self, wanted: Filter) -> None:
        """Raise InputError where a filter names a field that no document has, or bounds for lists of strings."""
        conditions = [*on_fields(wanted)]
        if unknown := [condition.field for condition in conditions if condition.field not in self.by_name]:
            raise InputError(self._unknown(unknown[0]))
        for condition in conditions:
            if isinstance(condition, Range) and self.by_name[condition.field].has_lists:
                raise InputError(f"{shown(condition.field)} holds lists of strings, which have no order; name a string")

    def check_kinds(self, wanted: Filter) -> None:
        """Raise InputError as `check`, and where a filter compares a field with a kind of value that it never has."""
        self.check(wanted)
        for condition in on_fields(wanted):
            compared = {condition.kind} if isinstance(condition, Range) else {kind for kind, _ in condition.keys}
            kinds = self.by_name[condition.field].kinds
            if strange := compared - kinds:
                shown_kinds = kinds - {TEXTS} if DATES in kinds else kinds
                has = " and ".join(KINDS[kind] for kind in sorted(shown_kinds))
                raise InputError(
                    f"{shown(condition.field)} holds {has}, but the filter compares it with {KINDS[min(strange)]}"
                )

    def _unknown(self, name: str) -> str:
        names = [*self.by_name]
        if not names:
            return "the documents have no metadata; leave it out"
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        known = ", ".join(map(shown, names[:_MAX_LISTED])) + more
        return f"no document has the field {shown(name)}; the fields are {known}"


class FieldTypesWriter:
    """Collects the types of fields from documents that are seen one at a time; keeps nothing of any of them."""

    def __init__(self) -> None:
        self._kinds: defaultdict[str, set[int]] = defaultdict(set)
        self._lists: set[str] = set()

    def append(self, document: Document) -> None:
        """Add what a document has."""
        for name, value in document.metadata.items():
            kinds = self._kinds[name]
            kinds.update(kind for kind, _ in sort_keys(value))
            texts = value if isinstance(value, list) else [value]
            if DATES not in kinds and any(isinstance(each, str) and instant(each) is not None for each in texts):
                kinds.add(DATES)
            if isinstance(value, list):
                self._lists.add(name)

    def types(self) -> FieldTypes:
        """Return the types so far; a field of nothing but null and empty lists is none."""
        return FieldTypes(
            {
                name: FieldType(frozenset(kinds), name in self._lists)
                for name, kinds in sorted(self._kinds.items())
                if kinds
            }
        )


def shown(name: str) -> str:
    """Return the name of a field for a message, cut short where it is long."""
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"
