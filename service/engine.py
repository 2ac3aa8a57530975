"""Queries of any number of requests, answered in batches from one release, off the event loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from retrieval.documents import Document
from retrieval.encoder import Tokens
from retrieval.release.reader import Release
from retrieval.retriever import Answer, Observe, Query
from service.batcher import Batcher

# Twice what the encoder takes at once: enough queries of a length to fill it, in 0.1 to 0.2 s on two cores.
_MOST_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Found:
    """An answer with the documents it kept, in its order."""

    answer: Answer
    documents: list[Document]


@dataclass(slots=True)
class _Asked:
    """A query, and its tokens once it was weighed."""

    query: Query
    tokens: Tokens | None = None


class Engine:
    """Answers queries from one release. observe_batch: is told how many queries were answered together."""

    def __init__(
        self,
        release: Release,
        queue_limit: int,
        deadline_seconds: float,
        observe: Observe,
        observe_batch: Callable[[int], None],
    ) -> None:
        self.release = release
        self._observe, self._observe_batch = observe, observe_batch
        self._batcher = Batcher[_Asked, Found](self._answer, self._weigh, _MOST_TOKENS, queue_limit, deadline_seconds)

    @property
    def depth(self) -> int:
        """Queries waiting or at work."""
        return self._batcher.depth

    async def search(self, queries: Sequence[Query]) -> list[Found]:
        """Answers in order. Raises Overloaded or DeadlineExceeded."""
        return await self._batcher.submit([_Asked(query) for query in queries])

    def close(self) -> None:
        """Wait for the queries at work and drop those that wait."""
        self._batcher.close()

    def _weigh(self, asked: _Asked) -> int:
        if asked.tokens is None:
            (asked.tokens,) = self.release.retriever.tokens([asked.query])
        return len(asked.tokens.ids)

    def _answer(self, batch: Sequence[_Asked]) -> list[Found]:
        queries, tokens = [each.query for each in batch], [each.tokens for each in batch if each.tokens is not None]
        self._observe_batch(len(batch))
        answers = self.release.retriever.search(queries, self._observe, tokens)
        documents = self.release.documents
        return [Found(answer, [documents[position] for position in answer.positions.tolist()]) for answer in answers]
