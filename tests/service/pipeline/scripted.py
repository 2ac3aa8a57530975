"""A release whose retriever squares numbers, behind a gate, and records its batches."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson

from taugate.retrieval.documents.store import Document
from taugate.retrieval.encoder.encoder import Tokens
from taugate.retrieval.query import Answer, Query
from taugate.service.pipeline.record import SearchForm, SearchRecord, write_body
from taugate.service.pipeline.search import SearchPipeline

PATIENCE = 10


@dataclass(frozen=True)
class Item:
    """A query that is a number.

    Attributes:
        length: In tokens, None for one whose vector is known.
        fate: Done, or what raises: tokenize, encode (with its whole batch) or search (with its whole group).
    """

    number: int
    length: int | None = 1
    fate: str = "done"

    async def ask(self, pipeline: SearchPipeline) -> int:
        """The square of the number, from the pipeline."""
        vector = np.array([self.number], dtype=np.float32) if self.length is None else None
        documents: Any = Squares()

        def write(query: Query, encoded: np.ndarray, answer: Answer, random: np.ndarray) -> SearchRecord:
            assert encoded.tolist() == [self.number]
            body = write_body(SearchForm(), answer, answer.read(documents), pipeline.release.manifest)
            return SearchRecord.of(query, answer, random, body)

        record = await pipeline.search(Query(self, 1), vector, write)  # type: ignore[arg-type]  # passed on as it is
        (result,) = orjson.loads(record.to_json("", b"null"))["results"]
        return int(result["id"])


class Squares:
    """Documents: at each position one whose id is the square."""

    def __getitem__(self, position: int) -> Document:
        return Document(str(position**2), "")


@dataclass
class Script:
    """What the retriever does, and what it was given.

    Attributes:
        gate: Acquired once by each batch that is encoded.
        alone: By batch, whether all processors encode it.
    """

    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    batches: list[list[Item]] = field(default_factory=list)
    groups: list[list[Item]] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)
    finished: int = 0
    broken: set[Item] = field(default_factory=set)

    def open(self) -> None:
        """Let every batch through from now on."""
        self.gate.release(1_000_000)

    async def busy(self) -> None:
        """Wait until one more batch is being encoded."""
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)

    def numbers(self) -> list[list[int]]:
        """The batches by their numbers."""
        return [[item.number for item in batch] for batch in self.batches]

    def pipeline(
        self, *, workers: int = 1, max_tokens: int = 100, max_group: int = 32, packed: bool = False
    ) -> SearchPipeline:
        """A pipeline that does as the script says."""
        retriever = _Retriever(self, single=False, packed=packed)
        manifest = SimpleNamespace(
            bootstrap=SimpleNamespace(seed=0), release_id="squares", state="calibrated", second_stage=None
        )
        manifest.searchable = manifest
        release: Any = SimpleNamespace(retriever=retriever, documents=Squares(), manifest=manifest)

        class Limited(SearchPipeline):
            max_batch_tokens, max_group_queries = max_tokens, max_group

        return Limited(release, encoder_threads=workers)


class _Index:
    def __len__(self) -> int:
        return 1

    def score(self, vectors: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return np.zeros(positions.shape, dtype=np.float32)


class _Retriever:
    def __init__(self, script: Script, *, single: bool, packed: bool) -> None:
        self._script, self._single = script, single
        self._items: dict[int, Item] = {}
        self.index, self.second = _Index(), None
        self.encoder = SimpleNamespace(padded=lambda length: length, packed=packed)

    def single_threaded(self) -> "_Retriever":
        other = _Retriever(self._script, single=True, packed=self.encoder.packed)
        other._items = self._items
        return other

    def tokens(self, items: Sequence[Item]) -> list[Tokens]:
        if any(item.fate == "tokenize" for item in items):
            raise ValueError("has no tokens")
        for item in items:
            self._items[item.number] = item
        return [Tokens([item.number] * (item.length or 0), truncated=False) for item in items]

    def embed(self, tokens: Sequence[Tokens], observe: Callable[[str, float], None]) -> np.ndarray:
        script = self._script
        batch = [self._items[each.ids[0]] for each in tokens]
        script.batches.append(batch)
        script.alone.append(not self._single)
        script.entered.release()
        assert script.gate.acquire(timeout=PATIENCE)
        script.finished += 1
        if any(item.fate == "encode" for item in batch):
            script.broken |= {*batch}
            raise RuntimeError("broken")
        return np.array([[item.number] for item in batch], dtype=np.float32)

    def with_words(self, texts: Sequence[str], vectors: np.ndarray) -> np.ndarray:
        return vectors

    def answer(self, queries: Sequence[Query], vectors: np.ndarray, *_: object) -> list[Any]:
        group: list[Any] = [query.text for query in queries]
        self._script.groups.append(group)
        if any(item.fate == "search" for item in group):
            self._script.broken |= {*group}
            raise RuntimeError("broken")
        return [_answer(int(number)) for number in vectors[:, 0]]


def _answer(number: int) -> Answer:
    """The answer that keeps the document at a position."""
    one = np.ones(1, dtype=np.float32)
    return Answer(
        positions=np.array([number]),
        scores=one,
        ranks=np.array([1]),
        relevance=None,
        below_threshold=one < 1,
        propensities=one,
        considered=1,
        best_score=1.0,
        threshold=None,
        policy="none",
        not_comparable=None,
        calibrated=False,
        reason=None,
        refused=False,
        refusal=None,
        uncut=None,
        uncut_kept=0,
        retrieved=None,
    )
