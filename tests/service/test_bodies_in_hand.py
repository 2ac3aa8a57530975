"""Bodies of all requests together take no more memory than said, however many clients send most of one."""

import asyncio
from typing import Any

import pytest

from service.body_limit import BodyLimit
from service.errors import Overloaded

LIMIT, MOST = 1000, 64


async def reads_all(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass


def test_the_one_too_many_is_refused_and_there_is_room_again() -> None:
    async def scenario() -> None:
        limited, rest = BodyLimit(reads_all, LIMIT), asyncio.Event()

        def client() -> asyncio.Task[None]:
            parts = iter([{"body": b"a" * (LIMIT - 1), "more_body": True}, {"body": b"a", "more_body": False}])

            async def receive() -> Any:
                part = next(parts)
                if not part["more_body"]:
                    await rest.wait()
                return part

            return asyncio.ensure_future(limited({"type": "http", "headers": []}, receive, None))  # type: ignore[arg-type]

        slow = [client() for _ in range(MOST)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await client()
        slow.pop().cancel()
        await asyncio.sleep(0)
        rest.set()
        await asyncio.gather(client(), *slow)

    asyncio.run(asyncio.wait_for(scenario(), 10))
