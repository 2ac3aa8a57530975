"""POST /dify/retrieval: Dify's External Knowledge API, which makes Taugate a knowledge base for its workflows."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from taugate.errors import InputError
from taugate.release.manifest import Manifest
from taugate.retrieval.documents.filters import Filter, instant, written
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.top_k import Fields
from taugate.retrieval.query import Answer
from taugate.service.api.dialects import results as shared
from taugate.service.api.schemas import WHOLE_NUMBER, QueryText, SearchFields
from taugate.service.api.search import SearchHandlers
from taugate.service.errors import ApiError, Forbidden, Invalid, NotFound, Unauthorized
from taugate.service.http.exchange import EncodedJsonResponse
from taugate.service.http.operation import Operation
from taugate.service.pipeline.record import QUERY_ID_FIELD, Written
from taugate.storage.files import Json

_BOUNDS = {">": "gt", "≥": "gte", "<": "lt", "≤": "lte"}
_TIMES = {"before": "lt", "after": "gt"}
_NEGATED = {"is not": "is", "≠": "=", "not in": "in"}
# Dify's operators without a counterpart in Taugate. A message may repeat these names, but no text of the caller.
_UNTRANSLATABLE = ("contains", "not contains", "start with", "end with", "empty", "not empty")
# Dify's error codes. When Dify tests a new address, it takes 401 as proof of a working key and 404 as a wrong address,
# although it then requests a made-up knowledge base (langgenius/dify#39410).
_NO_KEY, _BAD_KEY, _NO_SUCH_KNOWLEDGE = 1001, 1002, 2001
_OPERATORS = ("is", "is not", "=", "≠", *_BOUNDS, *_TIMES, "in", "not in")
V = TypeVar("V")
_NO_KNOWLEDGE = (
    "knowledge_id: there is no such knowledge base; name `current`, or the id of the release in service (GET /release)"
)


def _require_names(value: V) -> V:
    """Check one field name or a list of them."""
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise PydanticCustomError("name", "give the name of a field, or a list of names")
    return value


_Name = Annotated[str, Field(min_length=1)]
_Names = _Name | Annotated[list[_Name], Field(min_length=1)]


class RetrievalSetting(shared.Lenient):
    """`score_threshold` can only drop further results; it never keeps one that τ drops. Dify's form sends 0.0."""

    top_k: Annotated[int, Field(ge=1), WHOLE_NUMBER] | None = None
    score_threshold: float | None = Field(default=None, ge=0, le=1)


class MetadataComparison(shared.Lenient):
    """A comparison of metadata fields with a value. With several fields, one match is enough."""

    name: Annotated[_Names, BeforeValidator(_require_names)]
    comparison_operator: str
    value: shared.FilterValue | None = None


class MetadataCondition(shared.Lenient):
    """Comparisons, all or at least one of which must hold."""

    logical_operator: Literal["and", "or"] | None = None
    conditions: list[MetadataComparison] | None = None


class DifyQuery(shared.Lenient):
    """A search. `knowledge_id` is `current`, or the id of the release in service."""

    knowledge_id: str
    query: QueryText
    retrieval_setting: RetrievalSetting | None = None
    metadata_condition: MetadataCondition | None = None


class DifyRecord(BaseModel):
    """A returned passage. `metadata` also contains its `id` and `document_id`."""

    content: str
    score: float = Field(ge=0)
    title: str
    metadata: dict[str, Any]


class DifyRecords(BaseModel):
    """The returned passages. `reason` says why there are none; `truncated` means that the query was too long."""

    records: list[DifyRecord]
    reason: str | None
    query_id: str
    release: str
    truncated: bool = Field(
        default=False, description="present and true if the query is longer than the encoder can read"
    )


def dify_operation(searching: SearchHandlers) -> Operation:
    """Return the operation; `searching` runs its searches like those of /search."""

    async def dify_retrieval(request: Request, body: DifyQuery) -> Response:
        """Search the release in service. The calibrated threshold always applies."""
        setting = body.retrieval_setting or RetrievalSetting()
        search = SearchFields.model_construct(
            query=body.query, k=setting.top_k, filter=_filter(body.metadata_condition, searching.fields)
        )
        form = _Records(setting.score_threshold or None)
        (reply,) = await searching.answer_dialect(request, [search], form, body.knowledge_id, _NO_KNOWLEDGE)
        return EncodedJsonResponse(reply)

    return Operation("dify_retrieval", dify_retrieval, DifyRecords, error_form=_error_form)


def _error_form(error: ApiError, headers: Mapping[bytes, bytes]) -> tuple[int, str, dict[str, Any]]:
    """Return status and code of an error for Dify, and the two fields that it reads, with its own error codes."""
    sent: type[ApiError] = type(error)
    number = error.status
    if isinstance(error, Unauthorized | Forbidden):
        has_key = isinstance(error, Forbidden) or headers.get(b"authorization", b"").startswith(b"Bearer ")
        sent, number = Forbidden, _BAD_KEY if has_key else _NO_KEY
    elif isinstance(error, NotFound):
        sent, number = Invalid, _NO_SUCH_KNOWLEDGE
    return sent.status, sent.code, {"error_code": number, "error_msg": str(error)}


@dataclass(frozen=True, slots=True)
class _Records:
    """Dify's reply format; `threshold` is that of `tightened`."""

    threshold: float | None

    def write(self, answer: Answer, documents: Sequence[Document], manifest: Manifest) -> Mapping[str, Written]:
        results, reason = shared.tightened(answer, documents, self.threshold)
        return {
            "records": [_record(document, score) for document, score in results],
            "reason": reason,
            "query_id": QUERY_ID_FIELD,
            "release": manifest.release_id,
            **({"truncated": True} if answer.truncated else {}),
        }


def _record(document: Document, score: float) -> Json:
    metadata = {name: value for name, value in document.metadata.items() if value is not None}
    return {
        "content": document.text,
        "score": score,
        "title": document.title or document.document_id,
        "metadata": {**metadata, "id": document.id, "document_id": document.document_id},
    }


def _filter(metadata: MetadataCondition | None, fields: Fields) -> Filter | None:
    """Translate a condition; the fields of the release say whether times are dates or numbers."""
    if metadata is None or not metadata.conditions:
        return None
    try:
        comparisons = [_any_field(comparison, fields) for comparison in metadata.conditions]
        return shared.combined_filter(comparisons, any_of=metadata.logical_operator == "or")
    except PydanticCustomError as error:
        raise Invalid(f"metadata_condition: {error.message()}") from error


def _any_field(comparison: MetadataComparison, fields: Fields) -> Filter:
    names = [comparison.name] if isinstance(comparison.name, str) else comparison.name
    return shared.combined_filter([_translated(name, comparison, fields) for name in names], any_of=True)


def _translated(name: str, comparison: MetadataComparison, fields: Fields) -> Filter:
    operator, value = comparison.comparison_operator, comparison.value
    if operator not in _OPERATORS:
        is_dify = operator in _UNTRANSLATABLE
        problem = f"the operator {operator!r} cannot be translated" if is_dify else "this operator is none of Dify's"
        _refuse(name, f"{problem}; use {', '.join(_OPERATORS)}")
    if value is None or (isinstance(value, list) and operator not in {"in", "not in"}):
        _refuse(name, f"{operator!r} needs {'a value' if value is None else 'one value, not a list'}")
    match _NEGATED.get(operator, operator):
        case "is":
            translated = _equal(name, value, fields)
        case "=":
            translated = shared.parsed_condition(name, _number(name, operator, value))
        case "in":
            values = value if isinstance(value, list) else [part.strip() for part in str(value).split(",")]
            translated = shared.parsed_condition(name, values)
        case "before" | "after":
            translated = _time(name, operator, value, fields)
        case _:
            translated = shared.parsed_condition(name, {_BOUNDS[operator]: _number(name, operator, value)})
    return shared.negated(translated) if operator in _NEGATED else translated


def _equal(name: str, value: object, fields: Fields) -> Filter:
    """Translate `is` to the value itself or, if the field holds dates, to its day or moment."""
    # A date is an ISO date, or the seconds since 1970 that Dify's form sends.
    same = shared.parsed_condition(name, value)
    with suppress(ValueError, TypeError, OverflowError):
        date = value if isinstance(value, str) and instant(value) is not None else written(float(str(value)))
        same_date = shared.parsed_condition(name, {"gte": date, "lte": date})
        alternatives = [alternative for alternative in (same, same_date) if _fits(alternative, fields)]
        return shared.combined_filter(alternatives or [same], any_of=True)
    return same


def _fits(comparison: Filter, fields: Fields) -> bool:
    """Return whether the fields support a comparison."""
    try:
        fields.check_kinds(comparison)
    except InputError:
        return False
    return True


def _time(name: str, operator: str, value: object, fields: Fields) -> Filter:
    """Translate `before` and `after`: an ISO date, or the seconds since 1970 that Dify's form sends."""
    # Seconds are compared as a date if the field holds dates, else as a number.
    if isinstance(value, str) and instant(value) is not None:
        return shared.parsed_condition(name, {_TIMES[operator]: value})
    number = _number(name, operator, value, "a number of seconds since 1970, or an ISO date such as 2024-05-31")
    with suppress(InputError, OverflowError):
        as_date = shared.parsed_condition(name, {_TIMES[operator]: written(number)})
        fields.check_kinds(as_date)
        return as_date
    return shared.parsed_condition(name, {_TIMES[operator]: number})


def _number(name: str, operator: str, value: object, needed: str = "a number") -> float:
    """Return a number, which Dify's forms may send as text, or refuse the value with a message that says `needed`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    _refuse(name, f"{operator} needs {needed}")


def _refuse(name: str, message: str) -> NoReturn:
    raise Invalid(f"metadata_condition: {name[:40]}: {message}")
