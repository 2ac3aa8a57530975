"""Takes judgements of results: looks up what the reply showed and keeps the judgement for drift and the query log."""

import asyncio
import time

import numpy as np

from taugate.drift.query_log import LoggedJudgement
from taugate.retrieval.documents.store import Document
from taugate.retrieval.release.reader import Release
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.query_log import Judged
from taugate.service.drift.recent_replies import REPEATED, Mark, RecentReplies, is_id
from taugate.service.errors import Invalid, NotFound
from taugate.service.pipeline.record import Results, read_shown

_MAX_LISTED_IDS = 8  # in a message
_NOT_SHOWN = "the reply did not show it; it showed"
_NOT_IN_SEARCH = "a search for this query does not show it; it shows"


class Feedback:
    """Judgements of one release's replies. Belongs to one event loop."""

    def __init__(self, replies: RecentReplies, release: Release, fleet: Fleet | None, seconds: float) -> None:
        """Take judgements of replies of a release for `seconds` after each; `fleet` has the other replicas, if any."""
        self._replies, self._documents, self._fleet, self._seconds = replies, release.documents, fleet, seconds
        self._manifest = release.manifest
        self._judged: list[Judged] = []

    async def find(self, query_id: str) -> Results:
        """Return what a reply showed, (n,) SHOWN.

        Raises:
            NotFound: If no replica remembers the reply.
        """
        shown = await asyncio.to_thread(self._replies.find, query_id, time.monotonic())
        return await self._fetch_from_fleet(query_id) if shown is None else shown

    async def judge(
        self,
        query_id: str,
        shown: Results,
        document_id: str,
        *,
        relevant: bool,
        key: str | None = None,
        query: str | None = None,
    ) -> bool:
        """Take a judgement of a reply, or of what a search shows now; returns whether it is new.

        Every new judgement is logged. Drift takes only the first document of a reply that is judged relevant: S_corr
        has one similarity per query.

        Args:
            query_id: Id of the reply. For a search 32 hexadecimal digits, the same for the same key and query, so that
                a judgement counts once among all workers and replicas.
            shown: What it showed, (n,) SHOWN or RESULT.
            document_id: `id` or `document_id` of a result. A `document_id` stands for the best passage of the document
                in the reply.
            relevant: Whether the document answers the query.
            key: Name of the caller's API key, None without keys.
            query: Text of the query that was searched for, None for a reply.

        Raises:
            Invalid: If the document was not shown.
        """
        if query is not None and await asyncio.to_thread(self._replies.find, query_id, time.monotonic()) is None:
            self._replies.add(query_id, time.monotonic(), shown)
        row, passage = await self._row_of(shown, document_id, _NOT_SHOWN if query is None else _NOT_IN_SEARCH)
        mark = await asyncio.to_thread(self._mark, query_id, int(shown["position"][row]), relevant)
        if mark.new:
            line = LoggedJudgement(
                at=time.time(),
                query_id=query_id if query is None else None,
                query=query,
                document_id=passage.id,
                relevant=relevant,
                rank=None if query is None else int(shown["rank"][row]),
                score=float(shown["score"][row]),
                key=key,
                collection=self._manifest.data.name,
                release=self._manifest.release_id,
            )
            self._judged.append(Judged(line, mark.counts))
        return mark.new

    def unknown(self) -> NotFound:
        """Return the error for an unknown reply, and for a reply to a key that may see other documents."""
        return NotFound(
            f"query_id: no reply of the last {self._seconds:g} s (TAUGATE_FEEDBACK_SECONDS) by the release in service "
            "has this id"
        )

    def take(self) -> list[Judged]:
        """Return the judgements since the last call."""
        judged, self._judged = self._judged, []
        return judged

    async def _row_of(self, shown: Results, document_id: str, problem: str) -> tuple[int, Document]:
        """Return the row of a document among the results, and its passage.

        Raises:
            Invalid: If it is not among them; the message starts with `problem` and lists their ids.
        """
        # In a thread, because an engine may take its time to read them.
        passages = await asyncio.to_thread(self._documents.at, shown["position"].astype(np.int64))
        ids = [passage.id for passage in passages]
        if document_id in ids:
            row = ids.index(document_id)
        else:
            row = next((row for row, passage in enumerate(passages) if passage.document_id == document_id), -1)
        if row < 0:
            raise Invalid(f"document_id: {problem} {', '.join(ids[:_MAX_LISTED_IDS]) or 'nothing'}")
        return row, passages[row]

    async def _fetch_from_fleet(self, query_id: str) -> Results:
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
            shown = read_shown(packed, len(self._documents), self._manifest.max_score)
        except ValueError as error:  # other clients can write to Redis
            raise self.unknown() from error
        self._replies.add(query_id, time.monotonic(), shown)
        return shown

    def _mark(self, query_id: str, position: int, relevant: bool) -> Mark:
        """Record a judgement here and among the replicas, which may have had it before."""
        mark = self._replies.mark(query_id, position, time.monotonic(), relevant=relevant)
        if self._fleet is None or not mark.new:
            return mark
        if not self._fleet.is_first(f"{query_id}:{position}{'+' if relevant else ''}"):
            return REPEATED
        return Mark(new=True, counts=mark.counts and self._fleet.is_first(f"{query_id}:"))
