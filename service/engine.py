"""Admission in front of the retriever: how many queries may wait, and how long. Knows limits, not HTTP.

One worker thread: the encoder already uses every processor, and two encodings at once only take turns on them.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from retrieval.documents import Document
from retrieval.release.reader import Release
from retrieval.retriever import Answer, Observe, Query
from service.errors import DeadlineExceeded, Overloaded


@dataclass(frozen=True, slots=True)
class Found:
    """An answer with the documents it kept, in its order."""

    answer: Answer
    documents: list[Document]


class Engine:
    """Answers queries from one release, off the event loop."""

    def __init__(self, release: Release, queue_limit: int, deadline_seconds: float, observe: Observe) -> None:
        self.release = release
        self.depth = 0
        self._limit = queue_limit
        self._deadline = deadline_seconds
        self._observe = observe
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="retriever")

    async def search(self, queries: Sequence[Query]) -> list[Found]:
        """Answer queries together, in order.

        Raises Overloaded at once when they would not fit the queue, DeadlineExceeded when the answer comes too late;
        what passes its deadline before its turn is never encoded.
        """
        if self.depth + len(queries) > self._limit:
            raise Overloaded(f"{self.depth} queries are waiting (limit {self._limit}); try again later")
        self.depth += len(queries)
        loop = asyncio.get_running_loop()
        work = self._worker.submit(self._answer, queries)
        work.add_done_callback(lambda done: loop.call_soon_threadsafe(self._leave, len(queries)))
        return await self._within_deadline(work)

    def close(self) -> None:
        """Wait for the query at work and drop those that wait."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    async def _within_deadline(self, work: "Future[list[Found]]") -> list[Found]:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(work), self._deadline)
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer within {self._deadline * 1000:.0f} ms") from error

    def _leave(self, queries: int) -> None:
        self.depth -= queries

    def _answer(self, queries: Sequence[Query]) -> list[Found]:
        answers = self.release.retriever.search(queries, self._observe)
        documents = self.release.documents
        return [Found(answer, [documents[position] for position in answer.positions.tolist()]) for answer in answers]
