"""Judgements of results, each of which counts once."""

import asyncio
import time
from collections.abc import Sequence

from taugate.retrieval.documents.store import Document
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.seen import Judged
from taugate.service.drift.shown import Judgeable, Shown, is_id
from taugate.service.errors import Invalid, NotFound

_SHOWN = 8  # ids that a message lists


class Judging:
    """shown: what replies showed; documents: of the release; seconds: how long a reply can be judged."""

    def __init__(self, shown: Shown, documents: Sequence[Document], fleet: Fleet | None, seconds: float) -> None:
        self._shown, self._documents, self._fleet, self._seconds = shown, documents, fleet, seconds
        self._judged: list[Judged] = []

    async def judge(self, query_id: str, document_id: str, *, relevant: bool) -> bool:
        """Whether the judgement is a new one.

        Of several documents of one reply the first that is judged relevant counts: S_corr has one for a query. Raises
        NotFound for a reply that is not known, Invalid for a document that it did not show.
        """
        reply = await asyncio.to_thread(self._shown.find, query_id, time.monotonic())
        if reply is None:
            reply = await self._of_another_replica(query_id)
        shown = {self._documents[position].id: at for at, position in enumerate(reply.positions.tolist())}
        if document_id not in shown:
            listed = ", ".join([*shown][:_SHOWN])
            raise Invalid(f"document_id: the reply did not show it; it showed {listed or 'nothing'}")
        place = shown[document_id]
        if not await asyncio.to_thread(self._is_first, query_id, int(reply.positions[place]), relevant):
            return False
        if relevant:
            self._judged.append(Judged(time.time(), query_id, document_id, float(reply.scores[place])))
        return True

    def unknown(self) -> NotFound:
        """What is said of a reply that is not known, and of one to a key that may see other documents."""
        return NotFound(
            f"query_id: no reply of the last {self._seconds:g} s (TAUGATE_FEEDBACK_SECONDS) by the release in service "
            "has this id"
        )

    def taken(self) -> list[Judged]:
        """Those that came since this was asked last."""
        taken, self._judged = self._judged, []
        return taken

    async def _of_another_replica(self, query_id: str) -> Judgeable:
        """What it showed, which is kept here from now on, with how it is judged. Raises NotFound."""
        if self._fleet is None or not is_id(query_id):
            raise self.unknown()
        packed = await asyncio.to_thread(self._fleet.find, query_id, time.time())
        if packed is None:
            raise self.unknown()
        try:
            reply = Judgeable.read(packed, len(self._documents))
        except ValueError as error:  # others can write to Redis as well
            raise self.unknown() from error
        self._shown.add(query_id, time.monotonic(), packed)
        return reply

    def _is_first(self, query_id: str, position: int, relevant: bool) -> bool:
        if not self._shown.is_first(query_id, position, time.monotonic(), relevant=relevant):
            return False
        judgement = f"{query_id}:{'' if relevant else position}"
        return self._fleet is None or self._fleet.is_first(judgement)
