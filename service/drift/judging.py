"""Judgements of results, each of which counts once."""

import asyncio
import time
from collections.abc import Callable

from cachetools import TTLCache

from service.drift.fleet import Fleet
from service.drift.seen import Judged
from service.errors import Invalid, NotFound
from service.reply import similarities_of

_MOST_JUDGED = 100_000  # remembered, so that none counts twice: some 20 MB
_SHOWN = 8  # ids that a message lists


class Judging:
    """find: what a reply of this process showed, by its id; seconds: how long it can be judged. Of one event loop."""

    def __init__(self, find: Callable[[str], bytes | None], fleet: Fleet | None, seconds: float) -> None:
        self._find, self._fleet, self._seconds = find, fleet, seconds
        self._known: TTLCache[tuple[str, str | None], None] = TTLCache(_MOST_JUDGED, seconds)
        self._judged: list[Judged] = []

    async def judge(self, query_id: str, document_id: str, *, relevant: bool) -> bool:
        """Whether the judgement is a new one.

        Of several documents of one reply the first that is judged relevant counts: S_corr has one for a query. Raises
        NotFound for a reply that is not known, Invalid for a document that it did not show.
        """
        similarities = await self._shown(query_id)
        if similarities is None:
            raise NotFound(
                f"query_id: no reply of the last {self._seconds:g} s (TAUGATE_FEEDBACK_SECONDS) by the release in "
                "service has this id"
            )
        if document_id not in similarities:
            listed = ", ".join([*similarities][:_SHOWN])
            raise Invalid(f"document_id: the reply did not show it; it showed {listed or 'nothing'}")
        key = (query_id, None if relevant else document_id)
        if not await self._is_first(key):
            return False
        if relevant:
            self._judged.append(Judged(time.time(), query_id, document_id, similarities[document_id]))
        return True

    def taken(self) -> list[Judged]:
        """Those that came since this was asked last."""
        taken, self._judged = self._judged, []
        return taken

    async def _shown(self, query_id: str) -> dict[str, float] | None:
        shown = self._find(query_id)
        if shown is None and self._fleet is not None:
            shown = await asyncio.to_thread(self._fleet.find, query_id, time.time())
        try:
            return None if shown is None else similarities_of(shown)
        except ValueError:  # others can write to Redis as well
            return None

    async def _is_first(self, key: tuple[str, str | None]) -> bool:
        if key in self._known:
            return False
        self._known[key] = None
        if self._fleet is None:
            return True
        return await asyncio.to_thread(self._fleet.is_first, ":".join(part or "" for part in key))
