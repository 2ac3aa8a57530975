"""Takes judgements of results: finds what the reply showed, and keeps what was judged for drift and the query log."""

import asyncio
import time
from collections.abc import Sequence

from taugate.retrieval.documents.store import Document
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.query_log import JudgedResult
from taugate.service.drift.recent_replies import REPEATED, Mark, RecentReplies, ShownResults, is_id
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
        self._judged: list[JudgedResult] = []

    async def judge(self, query_id: str, document_id: str, *, relevant: bool, key: str | None = None) -> bool:
        """Take a judgement; returns whether it is a new one.

        Each is logged. Of several documents of one reply, drift takes the first that is judged relevant: S_corr has one
        for a query.

        key: name of the API key of whoever judges, None without keys; document_id: of a result, its `id` or its
        `document_id`, which stands for the best of the document's passages there. Raises NotFound for a reply that is
        not known, Invalid for a document that it did not show.
        """
        reply = await asyncio.to_thread(self._replies.find, query_id, time.monotonic())
        if reply is None:
            reply = await self._fetch_from_fleet(query_id)
        passages = [self._documents[position] for position in reply.positions.tolist()]
        shown = {passage.id: row for row, passage in enumerate(passages)}
        row = shown.get(document_id)
        if row is None:
            row = next((row for row, passage in enumerate(passages) if passage.document_id == document_id), None)
        if row is None:
            listed = ", ".join([*shown][:_MAX_LISTED_IDS])
            raise Invalid(f"document_id: the reply did not show it; it showed {listed or 'nothing'}")
        mark = await asyncio.to_thread(self._mark, query_id, int(reply.positions[row]), relevant)
        if mark.new:
            found, similarity = passages[row].id, float(reply.scores[row])
            self._judged.append(JudgedResult(time.time(), query_id, found, similarity, relevant, mark.counts, key))
        return mark.new

    def unknown(self) -> NotFound:
        """Return the error for a reply that is not known, and for one to a key that may see other documents."""
        return NotFound(
            f"query_id: no reply of the last {self._seconds:g} s (TAUGATE_FEEDBACK_SECONDS) by the release in service "
            "has this id"
        )

    def take(self) -> list[JudgedResult]:
        """Return the results that were judged since the last call."""
        taken, self._judged = self._judged, []
        return taken

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

    def _mark(self, query_id: str, position: int, relevant: bool) -> Mark:
        """Record a judgement here and among the replicas, which may have had it before."""
        mark = self._replies.mark(query_id, position, time.monotonic(), relevant=relevant)
        if self._fleet is None or not mark.new:
            return mark
        if not self._fleet.is_first(f"{query_id}:{position}{'+' if relevant else ''}"):
            return REPEATED
        return Mark(new=True, counts=mark.counts and self._fleet.is_first(f"{query_id}:"))
