"""Compare a search grouped by document to a plain one, and a result with the id of its document to one without."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.markdown import table as markdown
from benchmarks.serving.filters import index_of, milliseconds
from benchmarks.serving.plan import ServingPlan
from benchmarks.workers import Workers
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.approximate import AnyIndex
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.grouping import Parents
from taugate.retrieval.index.kinds import Kind
from taugate.retrieval.policy.policy import Policy
from taugate.retrieval.query import Query
from taugate.retrieval.retriever import Retriever

HEADING = "Results grouped by document"
SET = "mixed_large"
_KINDS: tuple[Kind, ...] = ("flat", "hnsw")
_DEPTHS = (5, 20, 100)
_K, _QUERIES = 5, 300
_ARTICLES = "covidqa_chunks"  # whose ids are those of an article and a number


def section(plan: ServingPlan) -> str:
    """Time searches with and without `group_by`."""
    vectors = Experiment(plan.data, frozenset(), 1, plan.seed, Workers()).encoded(SET).vectors
    return table(vectors.documents, vectors.answerable, _parents(plan.data / SET / "corpus.jsonl"), plan.seed)


def table(passages: np.ndarray, queries: np.ndarray, parents: Parents, seed: int) -> str:
    """passages: (N, d), queries: (q, d) unit vectors. parents: (N,), as in DocumentStore.parents."""
    queries = queries[np.random.default_rng(seed).permutation(len(queries))[: 2 * _QUERIES]]
    choosing, asked = queries[:_QUERIES], queries[_QUERIES:]
    flat = FlatIndex.build(passages)
    lines = [line for kind in _KINDS for line in _rows(index_of(kind, flat, choosing), parents, asked)]
    own, named = _document_id_seconds()
    header = ["index", "k", "plain p50", "grouped p50", "ratio", "grouped p99", "longest list of passages"]
    return f"""\
Search and cut of the {len(passages):,} passages of {SET} (all-MiniLM-L6-v2, {passages.shape[1]} dimensions), which belong to
{len(np.unique(parents)):,} documents: passages of one title are one document, and so are those of one article of {_ARTICLES}. {len(asked):,} queries, one at a time, plain
and grouped in turn. `ratio` is the median of each query's own.

{markdown(header, lines)}

`document_id` takes {1e9 * (named - own):.0f} ns a result.
"""


def _rows(index: AnyIndex, parents: Parents, queries: np.ndarray) -> list[list[str]]:
    """Lines of the table for one index."""
    longest: list[int] = []

    class Recording:
        """The index, which notes how many passages it was asked for."""

        dimension, score = index.dimension, index.score

        def __len__(self) -> int:
            return len(index)

        def search(self, vectors: np.ndarray, k: int) -> object:
            longest.append(k)
            return index.search(vectors, k)

    lines = []
    policy = Policy("similarity", 0.4, _K)
    retriever = Retriever(None, index, policy, parents=parents)  # type: ignore[arg-type]  # nothing is encoded
    recording = Retriever(None, Recording(), policy, parents=parents)  # type: ignore[arg-type]
    for k in _DEPTHS:
        plain, grouped = Query("", k), Query("", k, group_by="document")
        seconds = np.empty((2, len(queries)))
        for row in range(-10, len(queries)):  # the first ten warm up
            for number, query in enumerate((plain, grouped)):
                vector = queries[max(row, 0)][None]
                began = time.perf_counter()
                retriever.answer([query], vector)
                seconds[number, max(row, 0)] = time.perf_counter() - began
        longest.clear()
        for vector in queries:
            recording.answer([grouped], vector[None])
        middle = np.median(seconds, axis=1)
        ratio = np.median(seconds[1] / seconds[0])
        high = milliseconds(np.percentile(seconds[1], 99))
        times = [milliseconds(middle[0]), milliseconds(middle[1]), f"{ratio:.2f} ×", high]
        lines.append([index.kind, str(k), *times, f"{max(longest):,}"])
    return lines


def _parents(corpus: Path) -> Parents:
    first: dict[str, int] = {}
    with corpus.open(encoding="utf-8") as lines:
        names = (_document(json.loads(line)) for line in lines)
        return np.array([first.setdefault(name, position) for position, name in enumerate(names)], dtype=np.int32)


def _document(record: dict[str, str]) -> str:
    source = record["_id"].split(":")[0]
    if source == _ARTICLES:
        return record["_id"].rsplit("_", 1)[0]
    return f"{source} {record.get('title') or record['_id']}"


def _document_id_seconds() -> tuple[float, float]:
    """Seconds to read the id of a passage, and that of its document."""
    passages = [Document(f"a#{number}", "text", parent="a") for number in range(1000)]

    def fastest(read: Callable[[Document], str]) -> float:
        return min(_timed(read, passages) for _ in range(200)) / len(passages)

    return fastest(lambda each: each.id), fastest(lambda each: each.document_id)


def _timed(read: Callable[[Document], str], passages: Iterable[Document]) -> float:
    began = time.perf_counter()
    for each in passages:
        read(each)
    return time.perf_counter() - began
