"""POST /dify/retrieval: Dify's External Knowledge API, so that Taugate is a knowledge base in its workflows."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from taugate.errors import InputError
from taugate.retrieval.documents.dates import instant, written
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.index.passages import Fields
from taugate.service.access.authorization import DIFY_PATH
from taugate.service.access.rate_limit import RateLimiter
from taugate.service.api.bodies import add_json_route
from taugate.service.api.dialects.results import FilterValue, combined, condition, dialect_score, negated, tightened
from taugate.service.api.openapi import errors, replies
from taugate.service.api.replies import EncodedJsonResponse
from taugate.service.api.schemas import WHOLE_NUMBER, QueryText, SearchFields
from taugate.service.api.search import SearchRoutes
from taugate.service.errors import Invalid

_BOUNDS = {">": "gt", "≥": "gte", "<": "lt", "≤": "lte"}
_TIMES = {"before": "lt", "after": "gt"}
# Dify's, too, and without a counterpart in Taugate: a message may name these, and no text of a caller's own.
_UNTRANSLATABLE = ("contains", "not contains", "start with", "end with", "empty", "not empty")
_OPERATORS = ("is", "is not", "=", "≠", *_BOUNDS, *_TIMES, "in", "not in")
V = TypeVar("V")
_NO_KNOWLEDGE = (
    "knowledge_id: there is no such knowledge base; name `current`, or the id of the release in service (GET /release)"
)


def _require_names(given: V) -> V:
    """Check the names of fields, as of one value (`FilterValue`)."""
    names = given if isinstance(given, list) else [given]
    if not names or not all(isinstance(each, str) and each for each in names):
        raise PydanticCustomError("name", "give the name of a field, or a list of names")
    return given


_Name = Annotated[str, Field(min_length=1)]
_Names = _Name | Annotated[list[_Name], Field(min_length=1)]


class _Lenient(BaseModel):
    """Fields that this API does not know are passed over: Dify grows fields of its own."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class RetrievalSetting(_Lenient):
    """`score_threshold` drops further results; it never lets one through that τ drops. Dify's form sends 0.0."""

    top_k: Annotated[int, Field(ge=1), WHOLE_NUMBER] | None = None
    score_threshold: float | None = Field(default=None, ge=0, le=1)


class MetadataComparison(_Lenient):
    """A comparison of metadata fields with a value; with several fields, one that meets it is enough."""

    name: Annotated[_Names, BeforeValidator(_require_names)]
    comparison_operator: str
    value: FilterValue | None = None


class MetadataCondition(_Lenient):
    """Comparisons of which all hold, or at least one."""

    logical_operator: Literal["and", "or"] | None = None
    conditions: list[MetadataComparison] | None = None


class DifyQuery(_Lenient):
    """A search. `knowledge_id` is `current`, or the id of the release in service."""

    knowledge_id: str
    query: QueryText
    retrieval_setting: RetrievalSetting | None = None
    metadata_condition: MetadataCondition | None = None


class DifyRecord(BaseModel):
    """A passage that was kept; `metadata` has its `id` and `document_id` beside its own fields."""

    content: str
    score: float = Field(ge=0)
    title: str
    metadata: dict[str, Any]


class DifyRecords(BaseModel):
    """The passages that were kept; `reason` says why there are none, `truncated` that the query was cut off."""

    records: list[DifyRecord]
    reason: str | None
    query_id: str
    release: str
    truncated: bool = Field(default=False, description="there and true if the query is longer than the encoder reads")


def add_dify_route(app: FastAPI, searching: SearchRoutes, limiter: RateLimiter) -> None:
    """Add the route to an application.

    Args:
        app: Gets the route.
        searching: Answers it as /search is answered.
        limiter: Of keys.
    """

    async def dify_retrieval(request: Request, body: DifyQuery) -> Response:
        """Search the release in service. The calibrated threshold is always in force."""
        setting = body.retrieval_setting or RetrievalSetting()
        search = SearchFields.model_construct(
            query=body.query, k=setting.top_k, filter=_filter(body.metadata_condition, searching.fields)
        )
        form = _Records(setting.score_threshold or None)
        (reply,) = await searching.answer_dialect(request, [search], form, body.knowledge_id, _NO_KNOWLEDGE)
        return EncodedJsonResponse(reply)

    add_json_route(
        app,
        DIFY_PATH,
        DifyQuery,
        dify_retrieval,
        limiter.charge,
        tags=["dialects"],
        responses=replies(200, DifyRecords) | errors(400, 413, 422, 429, 500, 503, 504),
    )


@dataclass(frozen=True, slots=True)
class _Records:
    """Dify's form of a reply.

    Attributes:
        threshold: As for `tightened`.
    """

    threshold: float | None

    def write(self, reply: dict[str, Any]) -> dict[str, Any]:
        results, reason = tightened(reply, self.threshold)
        kept: dict[str, Any] = {name: reply[name] for name in ("query_id", "release", "truncated") if name in reply}
        return {"records": [_record(each) for each in results], "reason": reason, **kept}


def _record(result: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in result["metadata"].items() if value is not None}
    return {
        "content": result["text"],
        "score": dialect_score(result),
        "title": result["title"] or result["document_id"],
        "metadata": metadata | {"id": result["id"], "document_id": result["document_id"]},
    }


def _filter(asked: MetadataCondition | None, fields: Fields) -> Filter | None:
    """Translate a condition.

    Args:
        fields: Of the release, which say whether times are dates or numbers.
    """
    if asked is None or not asked.conditions:
        return None
    try:
        comparisons = [_any_field(each, fields) for each in asked.conditions]
        return combined(comparisons, any_of=asked.logical_operator == "or")
    except PydanticCustomError as error:
        raise Invalid(f"metadata_condition: {error.message()}") from error


def _any_field(asked: MetadataComparison, fields: Fields) -> Filter:
    names = [asked.name] if isinstance(asked.name, str) else asked.name
    return combined([_comparison(name, asked, fields) for name in names], any_of=True)


def _comparison(name: str, asked: MetadataComparison, fields: Fields) -> Filter:
    operator, value = asked.comparison_operator, asked.value
    if operator not in _OPERATORS:
        known = operator in _UNTRANSLATABLE
        wrong = f"the operator {operator!r} cannot be translated" if known else "this operator is none of Dify's"
        _refuse(name, f"{wrong}; use {', '.join(_OPERATORS)}")
    if value is None or (isinstance(value, list) and operator not in {"in", "not in"}):
        _refuse(name, f"{operator!r} needs {'a value' if value is None else 'one value, not a list'}")
    match operator:
        case "is" | "is not":
            found = _equal(name, value, fields)
            return found if operator == "is" else negated(found)
        case "=" | "≠":
            found = condition(name, _number(name, operator, value))
            return found if operator == "=" else negated(found)
        case "in" | "not in":
            values = value if isinstance(value, list) else [each.strip() for each in str(value).split(",")]
            found = condition(name, values)
            return found if operator == "in" else negated(found)
        case "before" | "after":
            return _time(name, operator, value, fields)
    return condition(name, {_BOUNDS[operator]: _number(name, operator, value)})


def _equal(name: str, value: object, fields: Fields) -> Filter:
    """Translate `is`: the value itself or, if the field holds dates, its day or moment.

    Args:
        value: For dates an ISO date, or the seconds since 1970 that Dify's form sends.
    """
    same = condition(name, value)
    with suppress(ValueError, TypeError, OverflowError):
        date = value if isinstance(value, str) and instant(value) is not None else written(float(str(value)))
        alternatives = [each for each in (same, condition(name, {"gte": date, "lte": date})) if _fits(each, fields)]
        return combined(alternatives or [same], any_of=True)
    return same


def _fits(comparison: Filter, fields: Fields) -> bool:
    """Return True if the field can be compared in this way."""
    try:
        fields.check_kinds(comparison)
    except InputError:
        return False
    return True


def _time(name: str, operator: str, value: object, fields: Fields) -> Filter:
    """Translate `before` and `after`: an ISO date, or the seconds since 1970 that Dify's form sends.

    Seconds are compared as a date if the field holds dates, else as a number.
    """
    if isinstance(value, str) and instant(value) is not None:
        return condition(name, {_TIMES[operator]: value})
    number = _number(name, operator, value, "a number of seconds since 1970, or an ISO date such as 2024-05-31")
    with suppress(InputError, OverflowError):
        as_date = condition(name, {_TIMES[operator]: written(number)})
        fields.check_kinds(as_date)
        return as_date
    return condition(name, {_TIMES[operator]: number})


def _number(name: str, operator: str, value: object, needed: str = "a number") -> float:
    """Return a number, which Dify's forms may send as text.

    Args:
        needed: What a message asks for.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    _refuse(name, f"{operator} needs {needed}")


def _refuse(name: str, message: str) -> NoReturn:
    raise Invalid(f"metadata_condition: {name[:40]}: {message}")
