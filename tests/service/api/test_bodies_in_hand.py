"""Request bodies together take no more memory than allowed, however many clients send large ones."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from taugate.service.access.keys import ApiKey
from taugate.service.api.bodies import BodyLimits
from taugate.service.errors import Overloaded
from taugate.service.settings import Settings

LIMIT, MOST, OF_A_KEY, BATCHES = 1000, 64, 8, 4
SETTINGS = Settings(
    releases=Path("nowhere"), max_body_bytes=LIMIT, max_batch_bytes=LIMIT, max_batch=1, queue_limit=32 * BATCHES
)


async def reads_all(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass


class Clients:
    """Each sends all of a body but its last byte, and that when it is told to."""

    def __init__(self) -> None:
        self._limited, self.rest = BodyLimits(reads_all, SETTINGS), asyncio.Event()

    def begin(
        self, key: str | None = None, path: str = "/search", replies: list[Any] | None = None
    ) -> asyncio.Task[None]:
        parts = iter([{"body": b"a" * (LIMIT - 1), "more_body": True}, {"body": b"a", "more_body": False}])

        async def receive() -> Any:
            part = next(parts)
            if not part["more_body"]:
                await self.rest.wait()
            return part

        async def send(message: Any) -> None:
            if replies is not None:
                replies.append(message)

        state = {"request_id": "a"} | ({} if key is None else {"key": ApiKey(key, b"", frozenset())})
        scope = {"type": "http", "path": path, "headers": [], "state": state}
        return asyncio.ensure_future(self._limited(scope, receive, send))  # type: ignore[arg-type]


def test_body_over_total_limit_is_refused() -> None:
    async def scenario() -> None:
        clients = Clients()
        slow = [clients.begin() for _ in range(MOST)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="too many large bodies are"):
            await clients.begin()
        slow.pop().cancel()
        await asyncio.sleep(0)
        clients.rest.set()
        await asyncio.gather(clients.begin(), *slow)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_body_limit_per_key_spares_others() -> None:
    async def scenario() -> None:
        clients = Clients()
        greedy = [clients.begin("greedy") for _ in range(OF_A_KEY)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="too many large bodies of the key greedy"):
            await clients.begin("greedy")
        others = [clients.begin(f"key {number}") for number in range(MOST - OF_A_KEY)]
        clients.rest.set()
        await asyncio.gather(*greedy, *others)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_concurrent_batches_per_key_are_limited() -> None:
    async def scenario() -> None:
        clients = Clients()
        refused: list[Any] = []
        greedy = [clients.begin("greedy", "/search/batch") for _ in range(BATCHES)]
        await asyncio.sleep(0)
        await clients.begin("greedy", "/search/batch", refused)
        assert refused[0]["status"] == 429
        other, single = clients.begin("other", "/search/batch"), clients.begin("greedy")
        clients.rest.set()
        await asyncio.gather(*greedy, other, single)
        again: list[Any] = []
        await clients.begin("greedy", "/search/batch", again)
        assert again == []

    asyncio.run(asyncio.wait_for(scenario(), 10))
