"""Callers who hang up: what they asked for is dropped, unless it is at work already."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from service.errors import ClientGone

Result = TypeVar("Result")


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the connection closes. Raises ClientGone then.

    The request's body has to be read: what the connection says next is that it is closed.
    """
    answer, gone = asyncio.ensure_future(work), asyncio.ensure_future(_closed(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientGone("the connection was closed before there was an answer")
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


async def _closed(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
