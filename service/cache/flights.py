"""Single flight: what is asked again while it is being worked out is not worked out twice."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Flights(Generic[Result]):
    """Work in flight by key. Of one event loop."""

    def __init__(self) -> None:
        self._flights: dict[str, tuple[asyncio.Task[Result], list[None]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._flights

    async def join(self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of the work in flight under this key, begun here when there is none.

        Who leaves only leaves: the work is cancelled when nobody waits for it any more. What it raises, all are told.
        """
        if key not in self._flights:
            self._flights[key] = asyncio.ensure_future(work()), []
        flight = self._flights[key]
        task, waiting = flight
        waiting.append(None)
        try:
            return await asyncio.shield(task)
        finally:
            waiting.pop()
            if task.done() or not waiting:
                task.cancel()
                if self._flights.get(key) is flight:
                    del self._flights[key]
