"""How many queries may be in hand at once, and how long each may take."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from taugate.service.errors import DeadlineExceeded, Overloaded


class Admission:
    """limit: queries waiting or at work; seconds: until the answer of each. Of one event loop.

    observe: is told how many are, whenever that changes.
    """

    def __init__(self, limit: int, seconds: float, observe: Callable[[int], object]) -> None:
        self.depth = 0
        self._limit, self._seconds, self._observe = limit, seconds, observe

    @asynccontextmanager
    async def admitted(self, queries: int) -> AsyncIterator[None]:
        """What is awaited inside is cancelled at the deadline.

        Raises Overloaded at once when so many more are over the limit, DeadlineExceeded when they take too long.
        """
        if self.depth + queries > self._limit:
            raise Overloaded(f"{self.depth} queries are waiting (limit {self._limit}); try again later")
        self._change(queries)
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer within {self._seconds * 1000:.0f} ms") from error
        finally:
            self._change(-queries)

    def _change(self, queries: int) -> None:
        self.depth += queries
        self._observe(self.depth)


class Users:
    """`with users:` around every use. Of one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._count += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    async def gone(self) -> None:
        """Wait until nobody is there."""
        await self._none.wait()
