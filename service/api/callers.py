"""Callers who hang up: what they asked for is dropped, unless it is at work already."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from taugate.service.errors import ClientGone

Result = TypeVar("Result")

# Seconds. What is answered sooner costs less than a task that watches for its caller to leave.
_SOON = 0.05


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the connection closes. Raises ClientGone then.

    The request's body has to be read: what the connection says next is that it is closed.
    """
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 (for the type checker: a coroutine runs in a task)
    watching: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watching
        watching = asyncio.ensure_future(_closed(request))
        watching.add_done_callback(lambda closed: closed.cancelled() or caller.cancel())

    later = asyncio.get_running_loop().call_later(_SOON, watch)
    try:
        return await work
    except asyncio.CancelledError:
        if watching is not None and watching.done() and not caller.uncancel():
            raise ClientGone("the connection was closed before there was an answer") from None
        raise
    finally:
        later.cancel()
        if watching is not None:
            watching.cancel()


async def _closed(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
