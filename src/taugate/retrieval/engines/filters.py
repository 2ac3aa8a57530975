"""Filters as an engine evaluates them: tokens and numbers, so that every engine compares as Taugate does.

Engines differ in whether true equals 1, what a missing field is in a negation, and which names and texts a statement
can hold. So no value is compared there: each value of a field is uploaded as a token, a digest of the field, the kind
of value and the value; and numbers, and the moments of ISO dates, once more as float64, for bounds. A condition is then
"has one of these tokens".
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from taugate.errors import InputError
from taugate.retrieval.documents.columns import sort_keys
from taugate.retrieval.documents.dates import instant
from taugate.retrieval.documents.field_types import shown
from taugate.retrieval.documents.filters import DATES, NUMBERS, AnyOf, Condition, Filter, Not, OneOf, Range, SortKey
from taugate.retrieval.documents.store import Document

# Beyond it not every integer is a float64, which is what engines compare numbers as.
MAX_INTEGER = 2**53
# 96 bits: a corpus of 10⁹ distinct values has two of one token with a chance of about 10⁻¹¹.
_DIGITS = 24
_ID, _PARENT, _VALUE, _NUMBER, _DATE = range(5)  # what a token stands for
_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


@dataclass(frozen=True)
class Filterable:
    """What a row holds for filters.

    Attributes:
        tokens: Of its values, its id and its parent's, distinct and ascending.
        numbers: By `number_key` of the field, and moments of dates by `date_key`.
    """

    tokens: list[str]
    numbers: dict[str, float]


@dataclass(frozen=True)
class Dialect:
    """How an engine writes the two conditions that it evaluates.

    Attributes:
        has_any: A row has one of some tokens.
        compares: The number under a key stands in a relation (>, >=, < or <=) to another number; only asked of rows
            that have one.
    """

    has_any: Callable[[Sequence[str]], str]
    compares: Callable[[str, str, float], str]


_UNWRITTEN = Dialect(has_any=lambda tokens: "", compares=lambda key, sign, number: "")


def filterable(document: Document) -> Filterable:
    """Return what is uploaded of a document for filters.

    Raises:
        InputError: For an integer beyond ±2⁵³.
    """
    tokens = {_token(_ID, document.id)}
    numbers: dict[str, float] = {}
    if document.parent is not None:
        tokens.add(_token(_PARENT, document.parent))
    for name, value in document.metadata.items():
        for key in sort_keys(value):
            try:
                tokens.add(_value_token(name, key))
            except InputError as error:
                raise InputError(f"document {document.id!r}: {error}") from None
            if key[0] == NUMBERS:
                tokens.add(_token(_NUMBER, name))
                numbers[number_key(name)] = float(key[1])
        if isinstance(value, str) and (moment := instant(value)) is not None:
            tokens.add(_token(_DATE, name))
            numbers[date_key(name)] = moment
    return Filterable(sorted(tokens), numbers)


def number_key(name: str) -> str:
    """Return the key of a field's number: letters and digits only, whatever the field is called."""
    return "n" + _digest(name)


def date_key(name: str) -> str:
    """Return the key of the moment of a field's date, as `number_key`."""
    return "d" + _digest(name)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def id_condition(document_id: str, dialect: Dialect, *, chunks: bool) -> str:
    """Return the condition that a row has an id, or, with chunks, that it is a chunk of the document with it."""
    return dialect.has_any([_token(_PARENT if chunks else _ID, document_id)])


def condition(wanted: Filter, dialect: Dialect) -> str:
    """Return the condition of a filter of one condition or more.

    It is true or false of every row, never unknown, so that "not" is the contrary.

    Raises:
        InputError: For an integer beyond ±2⁵³.
    """
    return " and ".join(f"({_written(each, dialect)})" for each in wanted)


def check_comparable(wanted: Filter) -> None:
    """Raise InputError where no engine can compare a value of a filter exactly; see `condition`."""
    condition(wanted, _UNWRITTEN)


def _written(each: Condition, dialect: Dialect) -> str:
    match each:
        case OneOf(field=name, keys=keys):
            return dialect.has_any([_value_token(name, key) for key in keys])
        case Range(field=name, kind=kind):
            key, token = (date_key(name), _DATE) if kind == DATES else (number_key(name), _NUMBER)
            bounds = [(sign, getattr(each, bound)) for bound, sign in _OPERATORS.items()]
            compared = [
                dialect.compares(key, sign, _as_float(name, bound)) for sign, bound in bounds if bound is not None
            ]
            return " and ".join([dialect.has_any([_token(token, name)]), *(f"({each})" for each in compared)])
        case Not(negated=negated):
            return f"not ({condition(negated, dialect)})"
        case AnyOf(filters=filters):
            return " or ".join(f"({condition(inner, dialect)})" for inner in filters)


def _value_token(name: str, key: SortKey) -> str:
    kind, value = key
    if kind == NUMBERS and not isinstance(value, str):
        return _token(_VALUE, name, _as_float(name, value))
    return _token(_VALUE, name, value)


def _as_float(name: str, number: float) -> float:
    """Return a number as the float64 that equals it, with one zero."""
    if isinstance(number, int) and abs(number) > MAX_INTEGER:
        raise InputError(
            f"{shown(name)}: an integer beyond 2⁵³, which an engine cannot compare exactly; write it as a string"
        )
    return float(number) + 0.0


def _token(*parts: str | float) -> str:
    """Return the digest of values whose JSON is theirs alone: a string, true and 1.0 differ."""
    try:
        content = orjson.dumps(parts)
    except orjson.JSONEncodeError as error:  # half of a surrogate pair
        raise InputError("a text that is no valid Unicode; mend its encoding") from error
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
