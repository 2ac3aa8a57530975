"""Queries of any number of requests, answered in batches from one release, off the event loop: encoded, then searched.

Encoding is most of the work. As many threads as there are processors encode a batch each, of queries of one length, by
an encoder on one thread; a query that is alone has the encoder that uses all of them.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from retrieval.documents import Document
from retrieval.encoder import Tokens
from retrieval.release.reader import Release
from retrieval.retriever import Answer, Observe, Query
from retrieval.similarity import Float32
from retrieval.threads import for_search
from service.batcher import Batcher

# Tokens encoded together: no more queries/s with larger ones, and a query waits for those it shares a batch with.
_MOST_TOKENS = 512
# Queries searched together: a scan takes hardly longer for 16 than for one (docs/benchmarks/serving.md).
_MOST_SEARCHED = 32


@dataclass(frozen=True, slots=True)
class Found:
    """An answer with the documents it kept, in its order."""

    answer: Answer
    documents: list[Document]


@dataclass(frozen=True, slots=True)
class Threads:
    """How many batches are encoded at a time, and by how many threads one is searched."""

    encoder: int
    search: int = 1


@dataclass(slots=True)
class _Text:
    """A query's text, and its tokens once it was sorted."""

    text: str
    tokens: Tokens | None = None


@dataclass(frozen=True, slots=True)
class _Embedded:
    query: Query
    vector: Float32  # (d',)


class Engine:
    """Answers queries from one release. observe_batch: is told how many queries were encoded together."""

    def __init__(
        self,
        release: Release,
        threads: Threads,
        observe: Observe,
        observe_batch: Callable[[int], None],
    ) -> None:
        self.release = release
        self._observe, self._observe_batch = observe, observe_batch
        self._retriever = release.retriever
        self._single = release.retriever.single() if threads.encoder > 1 else release.retriever
        self._encoding = Batcher[_Text, Float32](self._embed, self._by_length, _MOST_TOKENS, threads.encoder)
        self._searching = Batcher[_Embedded, Found](
            self._search, lambda _: (None, 1), _MOST_SEARCHED, prepare=lambda: for_search(threads.search)
        )

    async def embed(self, text: str) -> Float32:
        """A query as it is compared with documents, (d',) float32."""
        (vector,) = await self._encoding.submit([_Text(text)])
        return vector

    async def answer(self, query: Query, vector: Float32) -> Found:
        """What is found for a query with this vector, (d',) float32."""
        (found,) = await self._searching.submit([_Embedded(query, vector)])
        return found

    def close(self) -> None:
        """Wait for the queries at work and drop those that wait."""
        self._encoding.close()
        self._searching.close()

    def _by_length(self, text: _Text) -> tuple[Hashable, int]:
        (text.tokens,) = self._retriever.tokens([text.text])
        length = self._retriever.encoder.padded(len(text.tokens.ids))
        return length, length

    def _embed(self, texts: Sequence[_Text], alone: bool) -> list[Float32]:
        self._observe_batch(len(texts))
        retriever = self._retriever if alone else self._single
        return list(retriever.embed([text.tokens for text in texts if text.tokens is not None], self._observe))

    def _search(self, batch: Sequence[_Embedded], _: bool) -> list[Found]:
        vectors = np.stack([each.vector for each in batch])
        answers = self._retriever.answer([each.query for each in batch], vectors, self._observe)
        documents = self.release.documents
        return [Found(answer, [documents[position] for position in answer.positions.tolist()]) for answer in answers]
