"""Shared parts of the dialects: scores that are comparable between releases, thresholds that only tighten, filters.

Clients send thresholds that their users never chose, such as the 0.0 of a form field. So τ always applies, and a
positive threshold can only drop further results.
"""

import math
from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from taugate.retrieval.documents.filter_schema import check_size, read_filter
from taugate.retrieval.documents.filters import AnyOf, Filter, Not, all_of
from taugate.retrieval.documents.store import Document
from taugate.retrieval.query import Answer
from taugate.retrieval.vectors import shortest_decimal

_RESERVED = ("$or", "$not")  # `read_filter` would take fields with these names for operators
_Scalar = str | int | float | bool
V = TypeVar("V")


class Lenient(BaseModel):
    """Base of requests that ignore unknown fields, because other products' clients add fields over time."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


def _require_values(value: V) -> V:
    """Check a value of a filter; pydantic's own message would name the members of the union one by one."""
    if value == []:
        raise PydanticCustomError("value", "the list is empty; add a value, or omit the filter")
    for scalar in value if isinstance(value, list) else [value]:
        if not isinstance(scalar, str | int | float) or (isinstance(scalar, float) and not math.isfinite(scalar)):
            raise PydanticCustomError("value", "give a text, a finite number or a Boolean, or a list of them")
    return value


FilterValue = Annotated[_Scalar | Annotated[list[_Scalar], Field(min_length=1)], BeforeValidator(_require_values)]


def dialect_scores(answer: Answer) -> list[float]:
    """Return the relevance of each result if the release models it, else its score, limited to 0…1."""
    # The products whose API this is expect that range; scores with a lexical part may be above it.
    if answer.relevance is not None:
        return [*map(shortest_decimal, answer.relevance)]
    return [min(max(0.0, shortest_decimal(score)), 1.0) for score in answer.scores]


def tightened(
    answer: Answer, documents: Sequence[Document], threshold: float | None
) -> tuple[list[tuple[Document, float]], str | None]:
    """Return the documents of the results that score at least a threshold, with their scores; else the reason."""
    # The threshold is in units of `dialect_scores`; None and 0 keep every result.
    scored = zip(documents, dialect_scores(answer), strict=True)
    results = [(document, score) for document, score in scored if not threshold or score >= threshold]
    return results, None if results else answer.reason or "all_below_threshold"


def parsed_condition(field: str, comparison: object) -> Filter:
    """Parse a condition on one field, in the syntax of /search."""
    if field in _RESERVED:
        raise PydanticCustomError("filter", "{name} is an operator, not a field", {"name": field})
    return read_filter({field: comparison}) or ()


def combined_filter(filters: list[Filter], *, any_of: bool) -> Filter:
    """Combine one or more filters, all of which must hold, or at least one if `any_of`."""
    if any_of:
        return check_size(AnyOf.of(filters))
    return check_size(all_of(*(part for conditions in filters for part in conditions)))


def negated(conditions: Filter) -> Filter:
    """Return a filter that matches exactly the documents that do not match `conditions`."""
    return (Not(conditions),)
