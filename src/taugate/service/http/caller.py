"""The caller of the request in progress."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from taugate.retrieval.documents.filters import Filter
from taugate.service.access.keys import ApiKey
from taugate.service.http.connection import Connection
from taugate.service.runtime.traces import SpanRef, Trace


@dataclass(slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        id: Id of the request, also in its reply and in the log.
        headers: Headers by lower-case name, the last line of a repeated one.
        connection: Connection of the request, None if another server runs the application.
        span: Span of the caller, None if the request names none.
        trace: Trace of the request, None if it is not traced.
        key: API key that the request was authorized with, None if it needed none.
        authorized: Whether the request passed on a path that is not public.
    """

    id: str
    headers: Mapping[bytes, bytes]
    connection: Connection | None = None
    span: SpanRef | None = None
    trace: Trace | None = None
    key: ApiKey | None = None
    authorized: bool = False

    @property
    def filter(self) -> Filter:
        """Documents that the caller may see; () permits all."""
        return () if self.key is None else self.key.filter


_caller: ContextVar[Caller] = ContextVar("caller")


def set_caller(caller: Caller) -> None:
    """Set the caller of the request that the current task belongs to."""
    _caller.set(caller)


def current_caller() -> Caller:
    """Return the caller of the request that the current task belongs to."""
    return _caller.get()
