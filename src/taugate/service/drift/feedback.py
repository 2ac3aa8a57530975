"""Takes judgements of results: looks up what the reply showed and keeps the judgement for drift and the query log."""

import asyncio
import time
from typing import NamedTuple

import numpy as np

from taugate.retrieval.documents.store import Document
from taugate.retrieval.release.reader import Release
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.query_log import JudgedResult
from taugate.service.drift.recent_replies import REPEATED, Mark, RecentReplies, ShownResults, is_id
from taugate.service.errors import Invalid, NotFound
from taugate.service.pipeline.reply import Reply

_MAX_LISTED_IDS = 8  # in a message


class SearchedReply(NamedTuple):
    """A reply to a query that a judgement names, never sent to a client.

    Attributes:
        id: 32 hexadecimal digits in place of a reply's id, the same for the same key and query, so that a judgement
            counts once among all workers and replicas.
        query: Text of the query.
        reply: The reply that a search gives now.
    """

    id: str
    query: str
    reply: Reply


class Feedback:
    """Judgements of one release's replies. Belongs to one event loop."""

    def __init__(self, replies: RecentReplies, release: Release, fleet: Fleet | None, seconds: float) -> None:
        """Take judgements for `seconds` after a reply.

        Args:
            replies: Replies of all workers of this service.
            release: The release that replied.
            fleet: The other replicas, if any.
            seconds: How long a reply can be judged.
        """
        self._replies, self._documents, self._fleet, self._seconds = replies, release.documents, fleet, seconds
        self._max_score = release.manifest.max_score
        self._judged: list[JudgedResult] = []

    async def judge(self, query_id: str, document_id: str, *, relevant: bool, key: str | None = None) -> bool:
        """Take a judgement of a reply; returns whether it is new.

        Every new judgement is logged. Drift takes only the first document of a reply that is judged relevant: S_corr
        has one similarity per query.

        Args:
            query_id: Id of the reply.
            document_id: `id` or `document_id` of a result. A `document_id` stands for the best passage of the document
                in the reply.
            relevant: Whether the document answers the query.
            key: Name of the caller's API key, None without keys.

        Raises:
            NotFound: If the reply is unknown.
            Invalid: If the reply did not show the document.
        """
        reply = await asyncio.to_thread(self._replies.find, query_id, time.monotonic())
        if reply is None:
            reply = await self._fetch_from_fleet(query_id)
        row, passage = await self._find(reply, document_id, "the reply did not show it; it showed")
        return await self._take(query_id, reply, row, passage.id, relevant=relevant, key=key)

    async def judge_search(
        self, searched: SearchedReply, document_id: str, *, relevant: bool, key: str | None = None
    ) -> bool:
        """Take a judgement of what a search shows now; returns whether it is new. See `judge`.

        Raises:
            Invalid: If the search does not show the document.
        """
        shown = searched.reply.shown
        reply = ShownResults.read(shown, len(self._documents), self._max_score)
        row, passage = await self._find(reply, document_id, "a search for this query does not show it; it shows")
        if await asyncio.to_thread(self._replies.find, searched.id, time.monotonic()) is None:
            self._replies.add(searched.id, time.monotonic(), shown)
        rank = searched.reply.rank(row)
        return await self._take(
            searched.id, reply, row, passage.id, relevant=relevant, key=key, query=searched.query, rank=rank
        )

    def unknown(self) -> NotFound:
        """Return the error for an unknown reply, and for a reply to a key that may see other documents."""
        return NotFound(
            f"query_id: no reply of the last {self._seconds:g} s (TAUGATE_FEEDBACK_SECONDS) by the release in service "
            "has this id"
        )

    def take(self) -> list[JudgedResult]:
        """Return the results judged since the last call."""
        judged, self._judged = self._judged, []
        return judged

    async def _find(self, reply: ShownResults, document_id: str, problem: str) -> tuple[int, Document]:
        """Find a document among the results; returns its row and its passage.

        Args:
            reply: The results to look in.
            document_id: Id of a passage or of a document.
            problem: Start of the error message, before the ids that the reply shows.

        Raises:
            Invalid: If the document is not among the results.
        """
        # In a thread, because an engine may take its time to read them.
        passages = await asyncio.to_thread(self._documents.at, reply.positions.astype(np.int64))
        shown = {passage.id: row for row, passage in enumerate(passages)}
        row = shown.get(document_id)
        if row is None:
            row = next((row for row, passage in enumerate(passages) if passage.document_id == document_id), None)
        if row is None:
            listed = ", ".join([*shown][:_MAX_LISTED_IDS])
            raise Invalid(f"document_id: {problem} {listed or 'nothing'}")
        return row, passages[row]

    async def _take(  # noqa: PLR0913 (what a line of the log has)
        self,
        query_id: str,
        reply: ShownResults,
        row: int,
        passage_id: str,
        *,
        relevant: bool,
        key: str | None,
        query: str | None = None,
        rank: int | None = None,
    ) -> bool:
        """Keep a judgement unless the same one was made before; returns whether it is new."""
        position = int(reply.positions[row])
        mark = await asyncio.to_thread(self._mark, query_id, position, relevant)
        if mark.new:
            similarity, at = float(reply.scores[row]), time.time()
            self._judged.append(
                JudgedResult(at, query_id, passage_id, similarity, relevant, mark.counts, key, query=query, rank=rank)
            )
        return mark.new

    async def _fetch_from_fleet(self, query_id: str) -> ShownResults:
        """Fetch what a reply of another replica showed, and keep it here for its judgements.

        Raises:
            NotFound: If no replica remembers the reply.
        """
        if self._fleet is None or not is_id(query_id):
            raise self.unknown()
        packed = await asyncio.to_thread(self._fleet.find, query_id, time.time())
        if packed is None:
            raise self.unknown()
        try:
            reply = ShownResults.read(packed, len(self._documents), self._max_score)
        except ValueError as error:  # other clients can write to Redis
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
