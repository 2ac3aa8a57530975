"""Whether an engine finds what exact search finds, with the same bits, and how long one query takes."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.engines.plan import EnginePlan
from benchmarks.markdown import Target, share, table, targets
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_dataset
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.progress import Stopwatch
from taugate.ingestion.dataset.beir import read_dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.engines.engine import Engine, Rows
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.engines.verify import SampleDigest, open_verified, sampled_positions, shard_digest
from taugate.retrieval.index.flat import SPARE, FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.vectors.similarity import Float32
from tests.retrieval.engines.servers import NAMES, running

HEADING = "What is found, and how fast"
_K = 10
_SECONDS = 1800.0  # for what is no query
_IN_WORDS = {
    "milvus-lite": "milvus-lite 3.2.2",
    "pgvector": "PostgreSQL 18.4, pgvector 0.8.5",
    "at-url": "server at URL",
}
_WANTED_ROWS, _WANTED_RECALL = 0.99, 0.995


def section(plan: EnginePlan) -> str:
    """Search each data set in each engine, one query at a time, and compare with exact search in the process."""
    return "\n\n".join(_compared(plan, data_set) for data_set in plan.sets)


def _compared(plan: EnginePlan, data_set: str) -> str:
    with tempfile.TemporaryDirectory() as spool:
        rows, queries = _encoded(plan, data_set, Path(spool))
        exact = FlatIndex.build(rows.vectors)
        truth, flat_seconds = _one_by_one(exact.search, queries)
        lines: list[Sequence[object]] = [("FAISS flat, in the process", "", "1", "1", "", *_times(flat_seconds))]
        goals: list[Target] = []
        for name in NAMES:
            with running(name) as engine:
                words = plan.server if name == "at-url" and plan.server else _IN_WORDS[name]
                line, reached = _measured(engine, words, rows, queries, truth)
                lines.append(line)
                goals += reached
    heads = ("engine", "upload and index, s", f"recall@{_K}", "equal to the bit", "of those proposed whole")
    return (
        f"{data_set}: {len(rows.documents):,} documents of {rows.vectors.shape[1]} dimensions, {len(queries):,} "
        f"queries, one at a time, k = {_K}. An engine proposes {_K + SPARE} candidates and sends their vectors and "
        "documents. *Equal to the bit*: the share of queries whose scores and order are those of exact search. *Of those "
        "proposed whole*: the same, of the queries whose exact results are all found.\n\n"
        f"{table((*heads, 'p50, ms', 'p99, ms'), lines)}\n\n{targets(goals)}"
    )


def _measured(
    engine: Engine, words: str, rows: Rows, queries: Float32, truth: TopK
) -> tuple[Sequence[object], list[Target]]:
    record = _record(engine, rows)
    began = time.perf_counter()
    engine.drop(record.collection, _soon())
    engine.create(record.collection, rows.vectors.shape[1], _soon())
    engine.upload(record.collection, 0, rows, _soon())
    engine.finish(record.collection, record.graph, _soon())
    loaded = time.perf_counter() - began
    try:
        collection = open_verified(engine, record, rows.vectors.shape[1], _soon())
        top, seconds = _one_by_one(EngineIndex(collection, len(rows.documents), 60).search, queries)
    finally:
        engine.drop(record.collection, _soon())
    recall = float((top.positions[:, :, None] == truth.positions[:, None, :]).any(axis=1).mean())
    same = (top.positions == truth.positions).all(axis=1) & (top.scores == truth.scores).all(axis=1)
    whole = (np.sort(top.positions, axis=1) == np.sort(truth.positions, axis=1)).all(axis=1)
    equal, of_whole = float(same.mean()), float(same[whole].mean())
    return (
        (words, f"{loaded:.1f}", share(recall, 4), share(equal, 4), share(of_whole, 4), *_times(seconds)),
        [
            Target(f"{words}: recall@{_K}", recall, at_least=_WANTED_RECALL),
            Target(f"{words}: equal to the bit", equal, at_least=_WANTED_ROWS),
            Target(f"{words}: of those proposed whole", of_whole, at_least=1.0),
        ],
    )


def _encoded(plan: EnginePlan, data_set: str, spool: Path) -> tuple[Rows, Float32]:
    encoder = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER))
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    dataset = read_dataset(plan.data / data_set, "test", spool)
    encoded = encode_dataset(dataset, encoder, cache, print, Stopwatch())
    queries = encoded.answerable[: plan.queries] if plan.queries else encoded.answerable
    return Rows(encoded.documents, [*dataset.documents]), queries


def _record(engine: Engine, rows: Rows) -> EngineRecord:
    positions, sample = sampled_positions(len(rows.documents)), SampleDigest()
    sample.add(Rows(rows.vectors[positions], [rows.documents[position] for position in positions.tolist()]))
    digests = (shard_digest(rows),)
    return EngineRecord(
        kind=engine.kind,
        rows=len(rows.documents),
        dimension=rows.vectors.shape[1],
        shards=digests,
        sample=sample.hexdigest(),
    )


def _one_by_one(search: Callable[[Float32, int], TopK], queries: Float32) -> tuple[TopK, list[float]]:
    found: list[TopK] = []
    seconds: list[float] = []
    for row in range(len(queries)):
        began = time.perf_counter()
        found.append(search(queries[row : row + 1], _K))
        seconds.append(time.perf_counter() - began)
    return TopK(np.concatenate([f.scores for f in found]), np.concatenate([f.positions for f in found])), seconds


def _times(seconds: list[float]) -> tuple[str, str]:
    middle, slow = np.quantile(seconds, [0.5, 0.99]).tolist()
    return f"{1000 * middle:.2f}", f"{1000 * slow:.2f}"


def _soon() -> float:
    return time.monotonic() + _SECONDS
