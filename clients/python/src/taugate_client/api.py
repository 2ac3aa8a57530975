"""The API without I/O: each function returns a Call, which holds the request and parses the reply."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

from taugate_client.errors import TaugateError, UnexpectedReply, error_type
from taugate_client.models import (
    BatchResponse,
    ExplainOptions,
    ExplainResponse,
    FeedbackResponse,
    GateResponse,
    ReleaseResponse,
    SearchOptions,
    SearchRequest,
    SearchResponse,
)
from taugate_client.reading import read

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the parser of its reply.

    Attributes:
        method: HTTP method.
        path: Path below the URL of the service.
        body: Body that is sent as JSON, None for a GET.
        parse: Function that makes the result from the JSON of the reply.
    """

    method: str
    path: str
    body: Mapping[str, object] | None
    parse: Callable[[object], T]

    def read(self, status: int, headers: Mapping[str, str], content: bytes) -> T:
        """Return the result of a reply.

        Args:
            status: HTTP status.
            headers: Headers, which are looked up in lower case.
            content: The whole body.

        Raises:
            TaugateError: If the reply is an error, or not from Taugate.
        """
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deep
            body = None
        if not 200 <= status < 300:
            raise _error(status, headers, body)
        if body is None:
            kind = headers.get("content-type", "").partition(";")[0] or "something else"
            raise UnexpectedReply(
                f"the reply is {kind}, not JSON: is this the URL of a Taugate service?", status=status
            )
        return self.parse(body)


def search(query: str | None = None, **options: Unpack[SearchOptions]) -> Call[SearchResponse]:
    """Search for a text, or for the option `vector`."""
    return Call("POST", "/search", {"query": query, **options}, partial(read, SearchResponse))


def search_batch(queries: Iterable[str | SearchRequest]) -> Call[list[SearchResponse]]:
    """Search for several texts at once. Replies come in the order of the queries."""
    return Call(
        "POST", "/search/batch", {"queries": list(queries)}, lambda body: [*read(BatchResponse, body).responses]
    )


def gate(results: Iterable[Mapping[str, Any]], query: str | None, k: int | None) -> Call[GateResponse]:
    """Cut the results of another retriever."""
    options = {name: value for name, value in (("query", query), ("k", k)) if value is not None}
    return Call("POST", "/gate", {"results": list(results), **options}, partial(read, GateResponse))


def feedback(query_id: str, document_id: str, *, relevant: bool) -> Call[FeedbackResponse]:
    """Judge a result of a reply. The service counts equal judgements once, so retries are safe."""
    return _feedback({"query_id": query_id}, document_id, relevant)


def feedback_on_query(query: str, document_id: str, *, relevant: bool) -> Call[FeedbackResponse]:
    """Judge a result of a search for a text. Equal judgements count once."""
    return _feedback({"query": query}, document_id, relevant)


def explain(query: str | None, document_id: str, **options: Unpack[ExplainOptions]) -> Call[ExplainResponse]:
    """Ask why a document is, or is not, among the results of a search."""
    body = {"query": query, "document_id": document_id, **options}
    return Call("POST", "/explain", body, partial(read, ExplainResponse))


def release() -> Call[ReleaseResponse]:
    """Get the release in service."""
    return Call("GET", "/release", None, partial(read, ReleaseResponse))


def _feedback(judged: dict[str, object], document_id: str, relevant: bool) -> Call[FeedbackResponse]:
    body = judged | {"document_id": document_id, "relevant": relevant}
    return Call("POST", "/feedback", body, partial(read, FeedbackResponse))


def _error(status: int, headers: Mapping[str, str], body: Any) -> TaugateError:  # noqa: ANN401 (any JSON)
    error = body.get("error") if isinstance(body, Mapping) else None
    error = error if isinstance(error, Mapping) else {}
    code, message = error.get("code"), error.get("message")
    return error_type(status, code)(
        message or f"HTTP status {status} without a message from Taugate; the reply may come from a proxy",
        status=status,
        code=code,
        request_id=error.get("request_id") or headers.get("x-request-id"),
        retry_after=_seconds(headers.get("retry-after")),
    )


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which is a number or a date; None if it is neither."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
