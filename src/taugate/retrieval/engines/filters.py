"""Translates filters into tokens and numbers, so that every engine compares values as Taugate does.

Engines differ in whether true equals 1, how a negation treats a missing field, and which names and texts a statement
can hold. So engines do not compare values. Every value is uploaded as a token: a digest of the field, the kind of value
and the value. Numbers and the moments of ISO dates are also uploaded as float64, for range conditions. Any other
condition is then "has one of these tokens".

Earlier versions uploaded names and texts in the Unicode form of the corpus, in place of the composed one. So conditions
name the tokens of the decomposed form as well.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unicodedata import normalize

import orjson

from taugate.errors import InputError
from taugate.release.names import DATES, NUMBERS, shown
from taugate.retrieval.documents.columns import sort_keys
from taugate.retrieval.documents.filters import Filter, FilterRules, OneOf, Range, SortKey, Value, instant
from taugate.retrieval.documents.store import Document

# Engines compare numbers as float64, which cannot represent every integer beyond this.
MAX_INTEGER = 2**53
# 96 bits: among 10⁹ distinct values, two share a token with a probability of about 10⁻¹¹.
_DIGITS = 24
_ID, _PARENT, _VALUE, _NUMBER, _DATE = range(5)  # what a token stands for
_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


@dataclass(frozen=True)
class Filterable:
    """The part of a row that filters use."""

    tokens: list[str]  # distinct ascending tokens of its values, its id and its parent's id
    numbers: dict[str, float]  # numbers by the `number_key` of the field, and moments of dates by its `date_key`


@dataclass(frozen=True)
class FilterDialect:
    """How an engine writes the two conditions that it evaluates."""

    has_any: Callable[[Sequence[str]], str]  # writes the condition that a row has one of these tokens
    # writes the comparison (>, >=, < or <=) of the number under a key with another number; evaluated only for rows that
    # have the key
    compares: Callable[[str, str, float], str]


_UNWRITTEN = FilterDialect(has_any=lambda tokens: "", compares=lambda key, sign, number: "")


def filterable(document: Document) -> Filterable:
    """Return the part of a document that is uploaded for filters."""
    tokens = {_token(_ID, document.id)}
    numbers: dict[str, float] = {}
    if document.parent is not None:
        tokens.add(_token(_PARENT, document.parent))
    for own_name, value in document.metadata.items():
        name = normalize("NFC", own_name)
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
    """Return the key of a field's number, which has letters and digits only, whatever the field's name is."""
    return "n" + _digest(name)


def date_key(name: str) -> str:
    """Return the key of the moment of a field's date; see `number_key`."""
    return "d" + _digest(name)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def id_condition(document_id: str, dialect: FilterDialect, *, chunks: bool) -> str:
    """Return the condition that a row has an id or, with `chunks`, that it is a chunk of the document with that id."""
    return dialect.has_any([_token(_PARENT if chunks else _ID, document_id)])


def condition(query_filter: Filter, dialect: FilterDialect) -> str:
    """Return the statement of a filter with at least one condition."""
    # It is true or false for every row, never unknown, so that "not" negates it.
    return _rules(dialect).all_hold(query_filter)


def check_comparable(query_filter: Filter) -> None:
    """Raise InputError if engines cannot compare a value of a filter exactly; see `condition`."""
    condition(query_filter, _UNWRITTEN)


def _rules(dialect: FilterDialect) -> FilterRules[str]:
    def one_of(part: OneOf) -> str:
        stored = [(kind, form) for kind, value in part.keys for form in _forms(value)]
        names = {part.field, normalize("NFD", part.field)}
        return dialect.has_any(sorted(_value_token(form, key) for form in names for key in stored))

    def within(part: Range) -> str:
        return either([_within(part, form, dialect) for form in sorted({part.field, normalize("NFD", part.field)})])

    def either(statements: list[str]) -> str:
        return " or ".join(f"({statement})" for statement in statements)

    def both(statements: list[str]) -> str:
        return " and ".join(f"({statement})" for statement in statements)

    return FilterRules(one_of, within, "not ({})".format, either, both)


def _within(bounds: Range, name: str, dialect: FilterDialect) -> str:
    key, token = (date_key(name), _DATE) if bounds.kind == DATES else (number_key(name), _NUMBER)
    limits = [(sign, getattr(bounds, operator)) for operator, sign in _OPERATORS.items()]
    compared = [dialect.compares(key, sign, _as_float(name, limit)) for sign, limit in limits if limit is not None]
    return " and ".join([dialect.has_any([_token(token, name)]), *(f"({text})" for text in compared)])


def _forms(value: Value) -> list[Value]:
    """Return the Unicode forms in which rows may have a value."""
    return [*dict.fromkeys((value, normalize("NFD", value)))] if isinstance(value, str) else [value]


def _value_token(name: str, key: SortKey) -> str:
    kind, value = key
    if kind == NUMBERS and not isinstance(value, str):
        return _token(_VALUE, name, _as_float(name, value))
    return _token(_VALUE, name, value)


def _as_float(name: str, number: float) -> float:
    """Return a number as the float64 that equals it, without a negative zero."""
    if isinstance(number, int) and abs(number) > MAX_INTEGER:
        raise InputError(
            f"{shown(name)}: an integer beyond 2⁵³, which an engine cannot compare exactly; write it as a string"
        )
    return float(number) + 0.0


def _token(*parts: str | float) -> str:
    """Return the digest of values by their JSON, in which a string, true and 1.0 differ."""
    try:
        content = orjson.dumps(parts)
    except orjson.JSONEncodeError as error:  # half of a surrogate pair
        raise InputError("a text that is not valid Unicode; fix its encoding") from error
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
