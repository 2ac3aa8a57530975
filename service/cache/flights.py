"""Single flight: what is asked again while it is being worked out is not worked out twice."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Flights(Generic[Result]):
    """Work in flight by key. Of one event loop."""

    def __init__(self) -> None:
        self._landings: dict[str, asyncio.Future[Result]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._landings

    async def join(self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of the work in flight under this key, or of `work` when there is none.

        Who asks first does the work, without a task of its own; when it is cancelled, one of those who wait begins it
        anew. What it raises, all are told.
        """
        while (landing := self._landings.get(key)) is not None:
            await asyncio.wait((landing,))
            if not landing.cancelled():
                return landing.result()
        landing = self._landings[key] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except Exception as error:
            landing.set_exception(error)
            landing.exception()  # raised here as well: asyncio need not report that nobody else waited for it
            raise
        except BaseException:
            landing.cancel()
            raise
        else:
            landing.set_result(result)
            return result
        finally:
            del self._landings[key]
