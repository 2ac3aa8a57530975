"""Request bodies together take no more memory than allowed, however many clients send large ones."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from taugate.service.access.admission import Admission
from taugate.service.errors import Overloaded
from taugate.service.http.bodies import read_body
from taugate.service.http.operation import BodyLimit
from taugate.service.settings import Settings

LIMIT, MOST, OF_A_KEY, BATCHES = 1000, 64, 8, 4
SETTINGS = Settings(
    releases=Path("nowhere"), max_body_bytes=LIMIT, max_batch_bytes=LIMIT, max_batch=1, queue_limit=32 * BATCHES
)


def _part(body: bytes, *, more_body: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more_body}


class Clients:
    """Each sends all of a body but its last byte, and that when it is told to."""

    def __init__(self) -> None:
        self._admission, self.rest = Admission(SETTINGS, lambda _: None), asyncio.Event()

    def begin(self, key: str | None = None, limit: BodyLimit = "max_body_bytes") -> asyncio.Task[None]:
        parts = iter([_part(b"a" * (LIMIT - 1), more_body=True), _part(b"a", more_body=False)])

        async def receive() -> Any:
            part = next(parts)
            if not part["more_body"]:
                await self.rest.wait()
            return part

        async def read() -> None:
            with self._admission.body(key, batch=limit == "max_batch_bytes") as count:
                assert await read_body(receive, SETTINGS.requests, limit, b"", count) == b"a" * LIMIT

        return asyncio.ensure_future(read())


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
        greedy = [clients.begin("greedy", "max_batch_bytes") for _ in range(BATCHES)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="this key has 4 batches in progress"):
            await clients.begin("greedy", "max_batch_bytes")
        other, single = clients.begin("other", "max_batch_bytes"), clients.begin("greedy")
        clients.rest.set()
        await asyncio.gather(*greedy, other, single)
        await clients.begin("greedy", "max_batch_bytes")

    asyncio.run(asyncio.wait_for(scenario(), 10))
