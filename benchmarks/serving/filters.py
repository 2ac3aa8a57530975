"""Compare a search with a filter to one without, one query at a time, on the largest labelled set."""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.markdown import table as markdown
from benchmarks.serving.plan import ServingPlan
from benchmarks.workers import Workers
from taugate.calibration.acceptance.cheaper_search import set_breadth
from taugate.policy.arrays import dense_of
from taugate.release.names import Kind
from taugate.retrieval.documents.filters import Filter, OneOf, Range, all_of
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex, build
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import DocumentSubset

HEADING = "Filters"
SET = "mixed_large"
SHARES = (0.5, 0.05, 0.001)
_KINDS: tuple[Kind, ...] = ("flat", "hnsw")
_K, _QUERIES, _MARGIN = 5, 300, 0.005
_FIELDS, _VALUES = 16, 256  # as many as one filter may have


def section(plan: ServingPlan) -> str:
    """Time searches by the share of documents that a filter lets through."""
    vectors = Experiment(plan.data, frozenset(), 1, plan.seed, Workers()).encoded(SET).vectors
    return table(vectors.documents, dense_of(vectors.answerable), plan.seed)


def table(documents: np.ndarray, queries: np.ndarray, seed: int) -> str:
    """documents: (N, d), queries: (q, d) unit vectors; metadata are random, as no labelled set has any that fit."""
    rng = np.random.default_rng(seed)
    queries = queries[rng.permutation(len(queries))[: 2 * _QUERIES]]
    choosing, asked = queries[:_QUERIES], queries[_QUERIES:]
    numbers = rng.random((len(documents), _FIELDS))
    metadata = Metadata.of(
        Document("", "", None, {f"field{field}": value for field, value in enumerate(each)})
        for each in numbers.tolist()
    )
    flat = FlatIndex.build(documents)
    lines = [line for kind in _KINDS for line in rows(index_of(kind, flat, choosing), metadata, asked)]
    header = ["index", "documents searched", "p50", "p99", "p50 beside unfiltered", "of it, what the filter means"]
    return f"""\
Top {_K} of the {len(documents):,} documents of {SET} (all-MiniLM-L6-v2, {documents.shape[1]} dimensions), for {len(asked):,} queries, one at a time. Each query runs with all filters
of an index in turn. Every document has a random number of its own; a filter is a range of it, and is resolved anew for each query.

{markdown(header, lines)}

The largest filters that a request may have, on fields with {len(documents):,} distinct values: {_FIELDS} ranges take {_median(metadata, _ranges())}, and {_VALUES} values of one field {_median(metadata, _one_of(numbers))}.
"""


def rows(index: AnyIndex, metadata: Metadata, queries: np.ndarray) -> list[list[str]]:
    """Lines of the table for one index."""
    filters: list[Filter] = [(), *((Range("field0", lt=share),) for share in SHARES)]
    seconds, meaning = np.empty((2, len(filters), len(queries)))
    for row in range(-10, len(queries)):  # the first ten warm up
        for number, query_filter in enumerate(filters):
            began = time.perf_counter()
            within = DocumentSubset(metadata.where(query_filter)) if query_filter else None
            known = time.perf_counter()
            if within is None:
                index.search(queries[row : row + 1] if row >= 0 else queries[:1], _K)
            else:
                index.search_within(queries[row : row + 1] if row >= 0 else queries[:1], _K, within)
            seconds[number, max(row, 0)] = time.perf_counter() - began
            meaning[number, max(row, 0)] = known - began
    lines = []
    for number, query_filter in enumerate(filters):
        count = len(DocumentSubset(metadata.where(query_filter))) if query_filter else len(index)
        middle, high = np.percentile(seconds[number], [50, 99])
        share = f"{SHARES[number - 1] * 100:g} %: {count:,}" if query_filter else f"all: {count:,}"
        means = milliseconds(np.median(meaning[number])) if query_filter else ""
        times = f"{middle / np.median(seconds[0]):.2f} ×"
        lines.append([index.kind, share, milliseconds(middle), milliseconds(high), times, means])
    return lines


def index_of(kind: Kind, flat: FlatIndex, queries: np.ndarray) -> AnyIndex:
    """Build an index with the breadth that `calibrate` would choose."""
    if kind == "flat":
        return flat
    index = build(kind, flat.vectors[np.arange(len(flat))])
    if isinstance(index, ApproximateIndex):
        set_breadth(index, flat, queries, 10, _MARGIN)
    return index


def _ranges() -> Filter:
    return all_of(*(Range(f"field{field}", gte=0.1, lt=0.9) for field in range(_FIELDS)))


def _one_of(numbers: np.ndarray) -> Filter:
    return (OneOf.of("field0", *numbers[:_VALUES, 0].tolist()),)


def _median(metadata: Metadata, query_filter: Filter) -> str:
    return milliseconds(np.median([_timed(lambda: metadata.where(query_filter)) for _ in range(50)]))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def milliseconds(seconds: float) -> str:
    """Format a time for a table."""
    return f"{1000 * seconds:.2f} ms"
