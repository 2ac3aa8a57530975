"""Takes judgements of results: finds what the reply showed, and keeps what was judged for drift and the query log."""

import asyncio
import time
from typing import NamedTuple

import numpy as np

from taugate.retrieval.documents.store import Document, Documents
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.query_log import JudgedResult
from taugate.service.drift.recent_replies import REPEATED, Mark, RecentReplies, ShownResults, is_id
from taugate.service.errors import Invalid, NotFound
from taugate.service.pipeline.reply import Reply

_MAX_LISTED_IDS = 8  # in a message


class SearchedReply(NamedTuple):
    """A reply to a query that a judgement names, which nobody was sent.

    Attributes:
        id: 32 hexadecimal digits in place of a reply's id, the same for the same key and query, so that a judgement
            counts once among all workers and replicas.
        query: Its text.
        reply: As a search has it now.
    """

    id: str
    query: str
    reply: Reply


class Feedback:
    """Judgements of one release's replies. Belongs to one event loop."""

    def __init__(self, replies: RecentReplies, documents: Documents, fleet: Fleet | None, seconds: float) -> None:
        """replies: of this service's workers; documents: of the release, by position.

        fleet: the other replicas, None where there are none; seconds: how long a reply can be judged.
        """
        self._replies, self._documents, self._fleet, self._seconds = replies, documents, fleet, seconds
        self._judged: list[JudgedResult] = []

    async def judge(self, query_id: str, document_id: str, *, relevant: bool, key: str | None = None) -> bool:
        """Take a judgement of a reply; returns whether it is a new one.

        Each is logged. Of several documents of one reply, drift takes the first that is judged relevant: S_corr has one
        for a query.

        Args:
            query_id: Of the reply.
            document_id: Of a result, its `id` or its `document_id`, which stands for the best of the document's
                passages there.
            key: Name of the API key of whoever judges, None without keys.

        Raises:
            NotFound: For a reply that is not known, Invalid for a document that it did not show.
        """
        reply = await asyncio.to_thread(self._replies.find, query_id, time.monotonic())
        if reply is None:
            reply = await self._fetch_from_fleet(query_id)
        row, passage = await self._find(reply, document_id, "the reply did not show it; it showed")
        return await self._take(query_id, reply, row, passage.id, relevant=relevant, key=key)

    async def judge_search(
        self, searched: SearchedReply, document_id: str, *, relevant: bool, key: str | None = None
    ) -> bool:
        """Take a judgement of what a search shows now; returns whether it is a new one, as `judge` does.

        Args:
            searched: Query and reply.
            document_id: As of `judge`.
            relevant: As of `judge`.
            key: As of `judge`.

        Raises:
            Invalid: For a document that the search does not show.
        """
        shown = searched.reply.shown
        reply = ShownResults.read(shown, len(self._documents))
        row, passage = await self._find(reply, document_id, "a search for this query does not show it; it shows")
        if await asyncio.to_thread(self._replies.find, searched.id, time.monotonic()) is None:
            self._replies.add(searched.id, time.monotonic(), shown)
        rank = searched.reply.rank(row)
        return await self._take(
            searched.id, reply, row, passage.id, relevant=relevant, key=key, query=searched.query, rank=rank
        )

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

    async def _find(self, reply: ShownResults, document_id: str, otherwise: str) -> tuple[int, Document]:
        """Find a document among the results; returns its row, and the passage that stands for it.

        Args:
            otherwise: How the message begins where it is not there, before the ids of those that are.

        Raises:
            Invalid: Then.
        """
        # An engine may take its time to read them.
        passages = await asyncio.to_thread(self._documents.at, reply.positions.astype(np.int64))
        shown = {passage.id: row for row, passage in enumerate(passages)}
        row = shown.get(document_id)
        if row is None:
            row = next((row for row, passage in enumerate(passages) if passage.document_id == document_id), None)
        if row is None:
            listed = ", ".join([*shown][:_MAX_LISTED_IDS])
            raise Invalid(f"document_id: {otherwise} {listed or 'nothing'}")
        return row, passages[row]

    async def _take(  # noqa: PLR0913 (what a line of the log has)
        self,
        query_id: str,
        reply: ShownResults,
        row: int,
        found: str,
        *,
        relevant: bool,
        key: str | None,
        query: str | None = None,
        rank: int | None = None,
    ) -> bool:
        """Keep a judgement where nobody has said the same; returns whether it is a new one.

        Args:
            found: Id of the passage that is judged.
        """
        position = int(reply.positions[row])
        mark = await asyncio.to_thread(self._mark, query_id, position, relevant)
        if mark.new:
            similarity, at = float(reply.scores[row]), time.time()
            self._judged.append(
                JudgedResult(at, query_id, found, similarity, relevant, mark.counts, key, query=query, rank=rank)
            )
        return mark.new

    async def _fetch_from_fleet(self, query_id: str) -> ShownResults:
        """Fetch what a reply of another replica showed, and keep it here with its judgements.

        Raises:
            NotFound: .
        """
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
