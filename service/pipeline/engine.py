"""Queries of any number of requests, answered in batches from one release, off the event loop: encoded, then searched.

Encoding is most of the work. As many threads as there are processors encode a batch each, of queries of one length, by
an encoder on one thread; a query that is alone has the encoder that uses all of them. What a thread has encoded it
searches for, together with what others have encoded meanwhile, unless another is at that already.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.store import Document
from taugate.retrieval.encoder.encoder import Tokens
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.release.reader import Release
from taugate.retrieval.retriever import Observe
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.pipeline.batcher import Batcher, Job, tell
from taugate.service.runtime.resources import for_search, give_way
from taugate.service.runtime.traces import Trace, current, observing

Item = TypeVar("Item")


class Combiner(Generic[Item]):
    """work: is given some of what was brought, at most `most`, by one thread at a time; it raises nothing."""

    def __init__(self, work: Callable[[list[Item]], None], most: int) -> None:
        self._work, self._most = work, most
        self._brought: deque[Item] = deque()
        self._working = threading.Lock()

    def bring(self, items: Iterable[Item]) -> None:
        """Do the work, or leave the items to the thread that is at it, which looks again before it leaves."""
        self._brought.extend(items)
        # Looked at again after the lock is given back: what was brought meanwhile found it taken.
        while self._brought and self._working.acquire(blocking=False):
            try:
                batch = [self._brought.popleft() for _ in range(min(len(self._brought), self._most))]
                if batch:
                    self._work(batch)
            finally:
                self._working.release()


# Tokens encoded together, some 28 queries of 18: beyond 16 the encoder alone gains little or nothing with more of them
# (docs/benchmarks/serving.md), and a query waits for those it shares a batch with.
_MOST_TOKENS = 512
# Queries searched together: a flat index of 57,953 documents answers 118 queries/s one at a time and 616 together
# (docs/benchmarks/gate.md); a query waits for those it is searched with.
_MOST_SEARCHED = 32
# Whose similarity with a query is measured, for ROE: a few, as each costs every query a product of two vectors.
RANDOM_DOCUMENTS = 4
_KNOWN = -1  # the group of queries whose vector is known: no length in tokens


@dataclass(frozen=True, slots=True)
class Threads:
    """How many batches are encoded at a time, and by how many threads one is searched."""

    encoder: int
    search: int = 1


@dataclass(frozen=True, slots=True)
class Found:
    """An answer with the documents it kept, in its order.

    vector: the query's, (d',) float32; random: its similarities with some random documents, float32.
    """

    answer: Answer
    documents: list[Document]
    vector: Float32
    random: Float32


@dataclass(slots=True)
class _Asked:
    """A query, its vector once it is known, its request where that is traced, and its tokens once it was sorted."""

    query: Query
    vector: Float32 | None
    trace: Trace | None
    tokens: Tokens | None = None


def _prepare(search_threads: int) -> None:
    """Of each thread: what it searches with, and that whoever wants an answer, or has to be refused, is heard first."""
    for_search(search_threads)
    give_way()


class Engine:
    """Answers queries from one release.

    observe_batch: is told how many queries were encoded together; single: the retriever with an encoder on one thread.
    """

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
        self._rng = np.random.default_rng(release.manifest.bootstrap.seed)
        self._rng_of_recall = np.random.default_rng(release.manifest.bootstrap.seed)  # another thread's
        self.single = release.retriever.single_threaded() if threads.encoder > 1 else release.retriever
        self._searches = Combiner[Job[_Asked, Found]](self._search, _MOST_SEARCHED)
        self._batcher = Batcher[_Asked, Found](
            self._answer, self._by_length, _MOST_TOKENS, threads.encoder, lambda: _prepare(threads.search)
        )

    async def answer(self, query: Query, vector: Float32 | None = None) -> Found:
        """What is found for a query; vector: (d',) float32 where it is known, so that nothing has to be encoded."""
        return await self._batcher.submit(_Asked(query, vector, current()))

    def recall(self, query: Query, vector: Float32, positions: NDArray[np.int64]) -> Found:
        """What was found before, without a search; see Retriever.recall. Raises ValueError."""
        answer = self._retriever.rescore(query, vector, positions)
        (found,) = self._with_documents([answer], vector[None], self._rng_of_recall)
        return found

    def close(self) -> None:
        """Wait for the queries at work and drop those that wait."""
        self._batcher.close()

    def _by_length(self, asked: _Asked) -> tuple[Hashable, int]:
        if asked.vector is not None:
            return _KNOWN, 0
        (asked.tokens,) = self._retriever.tokens([asked.query.text])
        length = self._retriever.encoder.padded(len(asked.tokens.ids))
        return length, length

    def _answer(self, jobs: Sequence[Job[_Asked, Found]], alone: bool) -> None:
        tokens = [job.item.tokens for job in jobs if job.item.tokens is not None]
        observe = observing(self._observe, [job.item.trace for job in jobs])
        if tokens:
            self._observe_batch(len(tokens))
            vectors = (self._retriever if alone else self.single).embed(tokens, observe)
            for job, vector in zip(jobs, vectors, strict=True):
                job.item.vector = vector
        self._searches.bring(jobs)

    def _search(self, jobs: Sequence[Job[_Asked, Found]]) -> None:
        try:
            tell(jobs, self._found([job.item for job in jobs]))
        except Exception as error:  # noqa: BLE001 (it is raised where the results are waited for)
            tell(jobs, error)

    def _found(self, batch: Sequence[_Asked]) -> list[Found]:
        vectors = np.stack([asked.vector for asked in batch if asked.vector is not None])
        observe = observing(self._observe, [asked.trace for asked in batch])
        answers = self._retriever.answer([asked.query for asked in batch], vectors, observe)
        return self._with_documents(answers, vectors, self._rng)

    def _with_documents(self, answers: Sequence[Answer], vectors: Float32, rng: np.random.Generator) -> list[Found]:
        documents, index = self.release.documents, self._retriever.index
        random = index.score(vectors, rng.integers(0, len(index), size=(len(answers), RANDOM_DOCUMENTS)))
        return [
            Found(answer, [documents[position] for position in answer.positions.tolist()], vector, similarities)
            for answer, vector, similarities in zip(answers, vectors, random, strict=True)
        ]
