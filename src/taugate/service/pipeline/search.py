"""Searches one release for the queries of all requests, in batches, off the event loop.

    while batch := queue.next_batch():        # at most waiting / workers queries
        encode(batch)
        for group in encoded.drain(batch):    # including what other threads have encoded meanwhile
            deliver(group, search_and_cut(group))

Encoding takes most of the time. One thread per processor runs this loop, each with a single-threaded encoder; a query
that is alone is encoded on all processors instead.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from taugate.errors import EncoderUnavailable, TextRefused
from taugate.policy.arrays import Float32, QueryVectors
from taugate.retrieval.explanation import explain_stages
from taugate.retrieval.index.top_k import Observe, TopK, unobserved
from taugate.retrieval.query import Answer, Explanation, Query
from taugate.retrieval.reader import Release
from taugate.service.pipeline.queue import QueryQueue, QueuedQuery, SearchQueue, Write, deliver, failing, shutting_down
from taugate.service.pipeline.record import NOT_COMPARED, SearchRecord, random_documents
from taugate.service.runtime.logs import Trace
from taugate.service.runtime.resources import search_in_background


@dataclass(frozen=True)
class TwoStages:
    """How a release with two stages answers."""

    # time after a query's arrival at which it gets the first stage's results; None waits for the second
    seconds: float | None = None
    observe: Callable[[Answer], object] = lambda answer: None


class SearchPipeline:
    """The threads that search one release, and the queues between them."""

    # Tokens encoded together, about 28 queries of 18 tokens. More would gain little or nothing: the encoder is hardly
    # faster per query beyond 16 queries (benchmarks/results/serving.md), and each query waits for its whole batch.
    max_batch_tokens = 512
    # Queries searched together: a flat index of 57,953 documents answers 118 queries/s one at a time and 616 together
    # (benchmarks/decisions.md), but each query waits for its whole group.
    max_group_queries = 32

    def __init__(
        self,
        release: Release,
        *,
        encoder_threads: int = 1,
        search_threads: int = 1,
        observe: Observe = unobserved,
        observe_batch: Callable[[int], object] = lambda queries: None,
        two_stages: TwoStages = TwoStages(),
    ) -> None:
        """Start the threads. The caller closes the release after calling `close`."""
        self.release = release
        self._observe, self._observe_batch = observe, observe_batch
        self._two_stages = two_stages
        self._random_documents = random_documents(release.manifest)
        self._retriever = release.retriever
        # the release's retriever with an encoder on one thread
        self.single_threaded = release.retriever.single_threaded() if encoder_threads > 1 else release.retriever
        self._search_threads = search_threads
        self._rng = np.random.default_rng(release.manifest.bootstrap.seed)
        self._rescore_rng = np.random.default_rng(release.manifest.bootstrap.seed)  # `rescore` runs in another thread
        self._queue = QueryQueue(
            self.max_batch_tokens, encoder_threads, self._tokenize, packed=self._retriever.encoder.packed
        )
        self._encoded = SearchQueue(self.max_group_queries)
        self._busy: set[int] = set()  # ids of the threads that process a batch
        self._threads = [
            threading.Thread(target=self._run, name="taugate-search", daemon=True) for _ in range(encoder_threads)
        ]
        for thread in self._threads:
            thread.start()
        # One at a time: an explanation compares its query with every document, and searches have priority.
        self._explanations = ThreadPoolExecutor(1, "taugate-explain", search_in_background, (search_threads,))

    async def search(self, query: Query, vector: Float32 | None, write: Write) -> SearchRecord:
        """Search for a query, which is encoded unless it has a vector; returns the record that `write` makes."""
        # If the caller is cancelled before the query's turn, no work is done.
        queued = QueuedQuery(query, vector, write)
        self._queue.put(queued)
        return await queued.result

    def rescore(self, query: Query, vector: Float32, positions: NDArray[np.int64], write: Write) -> SearchRecord:
        """Rebuild the record of an earlier search; see Retriever.rescore."""
        answer = self._retriever.rescore(query, vector, positions)
        compared = self._retriever.with_words([query.text], vector[None])
        (random,) = self._random_similarities([query], compared, [answer], [None], self._rescore_rng)
        return write(query, vector, answer, random)

    async def explain(self, query: Query, document_id: str) -> Explanation:
        """Explain how a search treats a document; see retrieval.explanation for the arguments and errors."""
        try:
            explanation = self._explanations.submit(self._explain, query, document_id)
        except RuntimeError as error:
            raise shutting_down() from error
        return await asyncio.wrap_future(explanation)

    def _explain(self, query: Query, document_id: str) -> Explanation:
        if self._queue.closed:
            raise shutting_down()
        began = time.perf_counter()
        explanation = explain_stages(self.single_threaded, self.release.documents, query, document_id)
        self._observe("explain", began, time.perf_counter())
        return explanation

    def close(self) -> None:
        """Finish the current batches, fail the waiting queries with NotReady, and end the threads."""
        self._queue.close()
        self._explanations.shutdown()
        for thread in self._threads:
            thread.join()
        self._queue.fail_remaining()

    def _run(self) -> None:
        """Process batches until the pipeline is closed."""
        search_in_background(self._search_threads)  # the event loop, which replies to requests, has priority
        thread = threading.get_ident()
        while batch := self._queue.next_batch():
            self._busy.add(thread)
            with failing(batch):
                for group in self._encoded.drain(self._encode(batch)):
                    with failing(group):
                        deliver(group, self._records(group))
            self._busy.discard(thread)

    def _tokenize(self, queued: QueuedQuery) -> tuple[QueuedQuery, int | None]:
        """Return a query with its tokens and flags, and the padded number of tokens, None if its vector is cached."""
        if queued.vector is not None:
            return queued, None
        (tokens,) = self._retriever.tokens([queued.query.text])
        tokenized = replace(queued, query=queued.query.as_read(tokens), tokens=tokens)
        return tokenized, self._retriever.encoder.padded(tokens.count)

    def _encode(self, batch: Sequence[QueuedQuery]) -> list[QueuedQuery]:
        """Return a batch with its vectors, without queries that an endpoint refuses, which fail."""
        tokens = [queued.tokens for queued in batch if queued.tokens is not None]
        if not tokens:
            return [*batch]
        self._observe_batch(len(tokens))
        # A batch uses all processors if no other query is being encoded or waiting to be encoded.
        alone = len(self._busy) == 1 and not self._queue.has_more
        retriever = self._retriever if alone else self.single_threaded
        observe = observing(self._observe, [queued.trace for queued in batch])
        try:
            vectors = retriever.embed(tokens, observe)
        except (EncoderUnavailable, TextRefused) as error:
            if len(batch) == 1 or not error.replied:
                raise
            encoded = []
            for queued in batch:  # one of them may be to blame, and the others are not
                with failing([queued]):
                    encoded += self._encode([queued])
            return encoded
        # An endpoint may have read less than expected.
        return [
            replace(queued, query=queued.query.as_read(read), vector=vector)
            for queued, read, vector in zip(batch, tokens, vectors, strict=True)
        ]

    def _records(self, group: Sequence[QueuedQuery]) -> list[SearchRecord]:
        """Search for encoded queries together, cut their results at the threshold, and make their records."""
        queries = [queued.query for queued in group]
        vectors = np.stack([queued.vector for queued in group if queued.vector is not None])
        observe = observing(self._observe, [queued.trace for queued in group])
        # Queries that have waited for long go without the second stage, so that an overload sheds it before queries.
        patience = self._two_stages.seconds
        deadlines = [None if patience is None else queued.arrived + patience for queued in group]
        compared = self._retriever.with_words([query.text for query in queries], vectors)
        answers = self._retriever.answer(queries, vectors, observe, deadlines, compared)
        random = self._random_similarities(queries, compared, answers, deadlines, self._rng)
        for answer in answers:
            if answer.stage is not None:
                self._two_stages.observe(answer)
        written = zip(group, vectors, answers, random, strict=True)
        return [queued.write(queued.query, vector, answer, scores) for queued, vector, answer, scores in written]

    def _random_similarities(
        self,
        queries: Sequence[Query],
        compared: QueryVectors,
        answers: Sequence[Answer],
        deadlines: Sequence[float | None],
        rng: np.random.Generator,
    ) -> Sequence[Float32]:
        """Compare queries with random documents, for ROE; with a second stage, by its scores."""
        # A second stage scores one document, of queries that drift detection compares, and none if it is not
        # in time.
        index, second = self._retriever.index, self._retriever.second
        # With a second stage, by the queries' own deadlines, because their replies wait for this.
        rows = [row for row, answer in enumerate(answers) if second is None or answer.uncut is not None]
        random: list[Float32] = [NOT_COMPARED] * len(answers)
        if rows:
            positions = rng.integers(0, len(index), size=(len(rows), self._random_documents))
            scores = index.score(compared[rows], positions)
            if second is None:
                return list(scores)
            texts, limits = [queries[row].text for row in rows], [deadlines[row] for row in rows]
            ranked, _ = second.rank(texts, TopK(scores, positions), limits)
            for place, ranking in ranked.items():
                random[rows[place]] = ranking.scores
        return random


def observing(observe: Observe, traces: Sequence[Trace | None]) -> Observe:
    """Return a function that observes a stage, and adds it to the trace of every request in a batch that has one."""
    # Each request gets the times of the whole batch, because it waited for all of it.
    traced = {trace for trace in traces if trace is not None}
    if not traced:
        return observe

    def observe_and_trace(stage: str, began: float, ended: float) -> None:
        observe(stage, began, ended)
        for trace in traced:
            trace.add(stage, began, ended, len(traces))

    return observe_and_trace
