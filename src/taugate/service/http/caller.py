"""The caller of the request in progress."""

import asyncio
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from taugate.retrieval.documents.filters import Filter
from taugate.service.access.keys import ApiKey
from taugate.service.errors import ClientGone
from taugate.service.http.connection import Connection
from taugate.service.http.ids import new_id, reply_id
from taugate.service.runtime.traces import SpanRef, Trace

Result = TypeVar("Result")
# Only a request that takes longer than this gets a task that watches for its client to disconnect.
_WATCH_AFTER_SECONDS = 0.05


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
    def key_name(self) -> str | None:
        """Name of the key, None if the caller needed none."""
        return None if self.key is None else self.key.name

    @property
    def filter(self) -> Filter:
        """Documents that the caller may see; () permits all."""
        return () if self.key is None else self.key.filter

    def reply_id(self) -> str:
        """Return a new id for a reply to the caller, see `ids.reply_id`."""
        return new_id() if self.key is None else reply_id(self.key.filter, self.key.sha256)


# The caller of the request that the current task belongs to.
current_caller: ContextVar[Caller] = ContextVar("caller")


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`, which is cancelled if the client closes the connection.

    The body of the request must have been read, so that the next ASGI message is the disconnect.

    Raises:
        ClientGone: If the connection was closed.
    """
    worker = asyncio.current_task()
    watching: asyncio.Task[None] | None = None

    async def cancel_when_closed() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if worker is not None:
            worker.cancel()

    def watch() -> None:
        nonlocal watching
        watching = asyncio.ensure_future(cancel_when_closed())

    timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, watch)
    try:
        return await work
    except asyncio.CancelledError:
        # `uncancel` returns how many other cancellations are pending.
        if worker is not None and watching is not None and watching.done() and not worker.uncancel():
            raise ClientGone("the connection was closed before the reply was ready") from None
        raise
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()
