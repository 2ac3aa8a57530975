"""What dialects share: a score that is comparable from one release to the next, and a threshold that only tightens.

Clients send thresholds that their users never chose, such as the 0.0 of a form field. So a threshold that is absent,
null or 0 leaves τ in force, and a positive one drops further results.
"""

import math
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from taugate.retrieval.documents.filter_schema import check_size, read_filter
from taugate.retrieval.documents.filters import AnyOf, Filter, Not, all_of

_RESERVED = ("$or", "$not")  # fields that `read_filter` would take for something else
_Scalar = str | int | float | bool
V = TypeVar("V")


def _require_values(given: V) -> V:
    """Check a value of a filter: pydantic's own message would name the members of the union, one by one."""
    for each in given if isinstance(given, list) else [given]:
        if not isinstance(each, str | int | float) or (isinstance(each, float) and not math.isfinite(each)):
            raise PydanticCustomError("value", "give a text, a finite number or a Boolean, or a list of them")
    return given


FilterValue = Annotated[_Scalar | list[_Scalar], BeforeValidator(_require_values)]


def dialect_score(result: dict[str, Any]) -> float:
    """Return the relevance of a result where the release models it, else its similarity, at least 0.

    Args:
        result: Of a reply to a search.
    """
    relevance = result["relevance"]
    score: float = max(0.0, result["score"]) if relevance is None else relevance
    return score


def tightened(reply: dict[str, Any], threshold: float | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return the results that score at least a threshold, and why there is none.

    Args:
        reply: To a search.
        threshold: In units of `dialect_score`; None and 0 keep every result.
    """
    results = [each for each in reply["results"] if not threshold or dialect_score(each) >= threshold]
    return results, None if results else reply["reason"] or "all_below_threshold"


def condition(field: str, asked: object) -> Filter:
    """Parse a condition on one field.

    Args:
        field: Its name.
        asked: The condition as a filter of /search has it.

    Raises:
        PydanticCustomError: .
    """
    if field in _RESERVED:
        raise PydanticCustomError("filter", "{name} combines filters and is no field", {"name": field})
    return read_filter({field: asked}) or ()


def combined(filters: list[Filter], *, any_of: bool) -> Filter:
    """Combine filters into one.

    Args:
        filters: One or more.
        any_of: Whether one of them is enough.

    Raises:
        PydanticCustomError: Where that is too large.
    """
    if any_of:
        return check_size(AnyOf.of(filters))
    return check_size(all_of(*(each for wanted in filters for each in wanted)))


def negated(wanted: Filter) -> Filter:
    """Return the filter that a document meets where it does not meet another one."""
    return (Not(wanted),)
