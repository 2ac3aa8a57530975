"""How many requests are at work with something that may end only when the last of them has gone."""

import asyncio


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
