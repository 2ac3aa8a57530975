"""The API without a connection: each function makes a Call, which knows what to send and how to read the reply."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

from taugate_client.errors import TaugateError, UnexpectedReply, error_type
from taugate_client.models import (
    ExplainOptions,
    ExplainResponse,
    FeedbackResponse,
    ReleaseResponse,
    SearchOptions,
    SearchRequest,
    SearchResponse,
    read,
    read_release,
    read_search,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how its reply is read.

    Attributes:
        body: Sent as JSON, None for a GET.
        parse: Makes the result from the reply's JSON.
    """

    method: str
    path: str
    body: Mapping[str, object] | None
    parse: Callable[[object], T]

    def read(self, status: int, headers: Mapping[str, str], content: bytes) -> T:
        """Return the result of a reply. Raises the TaugateError that the reply stands for.

        Args:
            headers: Looked up in lower case.
            content: The whole body.
        """
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):  # not UTF-8 either, or nested too deep
            body = None
        if not 200 <= status < 300:
            raise _error(status, headers, body)
        if body is None:
            kind = headers.get("content-type", "").partition(";")[0] or "something else"
            raise UnexpectedReply(
                f"the reply is {kind}, not JSON: is this the URL of a Taugate service?", status=status
            )
        return self.parse(body)


def search(query: str, **options: Unpack[SearchOptions]) -> Call[SearchResponse]:
    """Search for one text."""
    return Call("POST", "/search", {"query": query, **options}, read_search)


def search_batch(queries: Iterable[str | SearchRequest]) -> Call[list[SearchResponse]]:
    """Search for several texts at once; replies come in the order of the queries."""
    return Call("POST", "/search/batch", {"queries": list(queries)}, _read_batch)


def feedback(query_id: str, document_id: str, *, relevant: bool) -> Call[FeedbackResponse]:
    """Judge a result of a reply. The service counts the same judgement once, so that it is safe to send it again."""
    return _feedback({"query_id": query_id}, document_id, relevant)


def feedback_on_query(query: str, document_id: str, *, relevant: bool) -> Call[FeedbackResponse]:
    """Judge a result of a search for a text. The same judgement counts once, as of `feedback`."""
    return _feedback({"query": query}, document_id, relevant)


def explain(query: str, document_id: str, **options: Unpack[ExplainOptions]) -> Call[ExplainResponse]:
    """Ask why a document is, or is not, among the results of a search."""
    body = {"query": query, "document_id": document_id, **options}
    return Call("POST", "/explain", body, partial(read, ExplainResponse))


def release() -> Call[ReleaseResponse]:
    """Ask which release is in service."""
    return Call("GET", "/release", None, read_release)


def _feedback(asked: dict[str, object], document_id: str, relevant: bool) -> Call[FeedbackResponse]:
    body = asked | {"document_id": document_id, "relevant": relevant}
    return Call("POST", "/feedback", body, partial(read, FeedbackResponse))


def _read_batch(body: object) -> list[SearchResponse]:
    replies = body.get("responses") if isinstance(body, Mapping) else None
    if not isinstance(replies, list):
        raise UnexpectedReply("the reply lacks responses: is this the URL of a Taugate service?")
    return [read_search(reply) for reply in replies]


def _error(status: int, headers: Mapping[str, str], body: Any) -> TaugateError:  # noqa: ANN401 (any JSON)
    said = body.get("error") if isinstance(body, Mapping) else None
    said = said if isinstance(said, Mapping) else {}
    code, message = said.get("code"), said.get("message")
    return error_type(status, code)(
        message or f"HTTP status {status} without a message of the service: something else answers, such as a proxy",
        status=status,
        code=code,
        request_id=said.get("request_id") or headers.get("x-request-id"),
        retry_after=_seconds(headers.get("retry-after")),
    )


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which has a number or a date; None if it has neither."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
