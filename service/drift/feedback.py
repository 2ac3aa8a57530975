"""Takes judgements of results: finds what the reply showed, and keeps the similarities of relevant documents."""

import asyncio
import time
from collections.abc import Sequence

from taugate.retrieval.documents.store import Document
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.query_log import PositiveFeedback
from taugate.service.drift.recent_replies import RecentReplies, ShownResults, is_id
from taugate.service.errors import Invalid, NotFound

_MAX_LISTED_IDS = 8  # in a message


class Feedback:
    """Judgements of one release's replies. Belongs to one event loop."""

    def __init__(
        self, replies: RecentReplies, documents: Sequence[Document], fleet: Fleet | None, seconds: float
    ) -> None:
        """replies: of this service's workers; documents: of the release, by position.

        fleet: the other replicas, None where there are none; seconds: how long a reply can be judged.
        """
        self._replies, self._documents, self._fleet, self._seconds = replies, documents, fleet, seconds
        self._relevant: list[PositiveFeedback] = []

    async def judge(self, query_id: str, document_id: str, *, relevant: bool) -> bool:
        """Take a judgement of a reply; returns whether it is a new one.

        Of several documents of one reply the first that is judged relevant counts: S_corr has one for a query.

        query_id: of the reply; document_id: of a result, its `id` or its `document_id`, which stands for the best of
        the document's passages there. Raises NotFound for a reply that is not known, Invalid for a document that it did
        not show.
        """
        reply = await asyncio.to_thread(self._replies.find, query_id, time.monotonic())
        if reply is None:
            reply = await self._fetch_from_fleet(query_id)
        return await self._take(query_id, reply, document_id, "the reply did not show it; it showed", relevant=relevant)

    async def judge_search(self, query_id: str, shown: bytes, document_id: str, *, relevant: bool) -> bool:
        """Take a judgement of what a search shows now; returns whether it is a new one, as `judge` does.

        query_id: stands for the key and the query, 32 hexadecimal digits, so that the judgement counts once among all
        workers and replicas; shown: see Reply; document_id, relevant: as of `judge`. Raises Invalid for a document that
        the search does not show.
        """
        if await asyncio.to_thread(self._replies.find, query_id, time.monotonic()) is None:
            self._replies.add(query_id, time.monotonic(), shown)
        reply = ShownResults.read(shown, len(self._documents))
        said = "a search for this query does not show it; it shows"
        return await self._take(query_id, reply, document_id, said, relevant=relevant)

    def unknown(self) -> NotFound:
        """Return the error for a reply that is not known, and for one to a key that may see other documents."""
        return NotFound(
            f"query_id: no reply of the last {self._seconds:g} s (TAUGATE_FEEDBACK_SECONDS) by the release in service "
            "has this id"
        )

    def take(self) -> list[PositiveFeedback]:
        """Return the relevant documents that were judged since the last call."""
        taken, self._relevant = self._relevant, []
        return taken

    async def _take(
        self, query_id: str, reply: ShownResults, document_id: str, otherwise: str, *, relevant: bool
    ) -> bool:
        """Find the document among the results, and keep the judgement where it is the first of its kind.

        otherwise: begins the message where the document is not there, before the ids of those that are.
        """
        passages = [self._documents[position] for position in reply.positions.tolist()]
        shown = {passage.id: row for row, passage in enumerate(passages)}
        row = shown.get(document_id)
        if row is None:
            row = next((row for row, passage in enumerate(passages) if passage.document_id == document_id), None)
        if row is None:
            listed = ", ".join([*shown][:_MAX_LISTED_IDS])
            raise Invalid(f"document_id: {otherwise} {listed or 'nothing'}")
        if not await asyncio.to_thread(self._is_first, query_id, int(reply.positions[row]), relevant):
            return False
        if relevant:
            self._relevant.append(PositiveFeedback(time.time(), query_id, passages[row].id, float(reply.scores[row])))
        return True

    async def _fetch_from_fleet(self, query_id: str) -> ShownResults:
        """Fetch what a reply of another replica showed, and keep it here with its judgements. Raises NotFound."""
        if self._fleet is None or not is_id(query_id):
            raise self.unknown()
        packed = await asyncio.to_thread(self._fleet.find, query_id, time.time())
        if packed is None:
            raise self.unknown()
        try:
            reply = ShownResults.read(packed, len(self._documents))
        except ValueError as error:  # others can write to Redis as well
            raise self.unknown() from error
        self._replies.add(query_id, time.monotonic(), packed)
        return reply

    def _is_first(self, query_id: str, position: int, relevant: bool) -> bool:
        if not self._replies.is_first(query_id, position, time.monotonic(), relevant=relevant):
            return False
        judgement = f"{query_id}:{'' if relevant else position}"
        return self._fleet is None or self._fleet.is_first(judgement)
