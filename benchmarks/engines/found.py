"""Compare an engine with exact search: equality to the bit, the gate's verdict, and the time per query."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.encoding import encoded_set
from benchmarks.engines.plan import EnginePlan
from benchmarks.engines.servers import NAMES, running
from benchmarks.markdown import Target, share, table, targets
from taugate.calibration.acceptance.accept import gate_settings
from taugate.calibration.encoding.shards import SHARD_ROWS
from taugate.calibration.metrics.inputs import clusters, ranking_outcomes
from taugate.calibration.progress import Job
from taugate.calibration.settings import CandidateSettings
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.acceptance import GateCandidate, judge
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.ranking import Parents
from taugate.policy.arrays import Float32, dense_of
from taugate.release.engine import EngineRecord
from taugate.release.search_records import GateRecord
from taugate.retrieval.engines.engine import Engine, Rows, SampleDigest, open_verified, sampled_positions, shard_digest
from taugate.retrieval.engines.search import EngineIndex
from taugate.retrieval.index.flat import SPARE, FlatIndex
from taugate.retrieval.index.top_k import TopK

HEADING = "What is found, and how fast"
_K = 10
_SECONDS = 1800.0  # for what is no query
_IN_WORDS = {
    "milvus-lite": "milvus-lite 3.2.2",
    "pgvector": "PostgreSQL 18.4, pgvector 0.8.5",
    "at-url": "server at URL",
}
_WANTED_ROWS, _WANTED_RECALL = 0.99, 0.995


@dataclass(frozen=True)
class _Asked:
    """A data set.

    Attributes:
        rows: Its documents.
        queries: Those that are searched for.
        vectors: Those that are searched for.
        parents: Of its chunks.
    """

    rows: Rows
    queries: Sequence[LabelledQuery]
    vectors: Float32
    parents: Parents

    def judged(self, name: str, exact: TopK, found: TopK) -> GateRecord:
        """Return what the gate says of what a search found, in the place of exact search."""
        units = SamplingUnits.from_clusters(clusters(self.queries))
        gate = gate_settings(CandidateSettings(), units, 1, Job(print))
        outcomes = [ranking_outcomes(self.queries, top.positions, _K, self.parents) for top in (exact, found)]
        (record,) = judge(outcomes[0], [GateCandidate(name, "engine", outcomes[1])], units, gate)
        return record


def section(plan: EnginePlan) -> str:
    """Search each data set in each engine, one query at a time, and compare with exact search in the process."""
    return "\n\n".join(_compared(plan, data_set) for data_set in plan.sets)


def _compared(plan: EnginePlan, data_set: str) -> str:
    with tempfile.TemporaryDirectory() as spool:
        asked = _encoded(plan, data_set, Path(spool))
        rows, queries = asked.rows, asked.vectors
        exact = FlatIndex.build(rows.vectors)
        truth, flat_seconds = _one_by_one(exact.search, queries)
        lines: list[Sequence[object]] = [("FAISS flat, in the process", "", "1", "1", "", "", *_times(flat_seconds))]
        goals: list[Target] = []
        for name in NAMES:
            with running(name) as engine:
                words = plan.server if name == "at-url" and plan.server else _IN_WORDS[name]
                line, reached = _measured(engine, words, asked, truth)
                lines.append(line)
                goals += reached
    heads = ("engine", "upload and index, s", f"recall@{_K}", "equal to the bit", "of those proposed whole", "gate")
    return (
        f"{data_set}: {len(rows.documents):,} documents of {rows.vectors.shape[1]} dimensions, {len(queries):,} "
        f"queries, one at a time, k = {_K}. An engine proposes {_K + SPARE} candidates and sends their vectors and "
        "documents. *Equal to the bit*: the share of queries whose scores and order are those of exact search. *Of those "
        "proposed whole*: the same, of the queries whose exact results are all found. *Gate*: its verdict on the engine in the place of exact search, by all of these queries, "
        f"with accuracy@{_K}, NDCG@10 and its default margin.\n\n"
        f"{table((*heads, 'p50, ms', 'p99, ms'), lines)}\n\n{targets(goals)}"
    )


def _measured(engine: Engine, words: str, asked: _Asked, truth: TopK) -> tuple[Sequence[object], list[Target]]:
    rows = asked.rows
    record = _record(engine, rows)
    began = time.perf_counter()
    engine.drop(record.collection, _soon())
    engine.create(record.collection, rows.vectors.shape[1], _soon())
    for first, shard in _shards(rows):
        engine.upload(record.collection, first, shard, _soon())
    engine.finish(record.collection, record, _soon())
    loaded = time.perf_counter() - began
    try:
        collection = open_verified(engine, record, rows.vectors.shape[1], _soon())
        top, seconds = _one_by_one(EngineIndex(collection, len(rows.documents), 60).search, asked.vectors)
    finally:
        engine.drop(record.collection, _soon())
    recall = float((top.positions[:, :, None] == truth.positions[:, None, :]).any(axis=1).mean())
    same = (top.positions == truth.positions).all(axis=1) & (top.scores == truth.scores).all(axis=1)
    whole = (np.sort(top.positions, axis=1) == np.sort(truth.positions, axis=1)).all(axis=1)
    equal, of_whole = float(same.mean()), float(same[whole].mean())
    judged = asked.judged(words, truth, top)
    return (
        (
            words,
            f"{loaded:.1f}",
            share(recall, 4),
            share(equal, 4),
            share(of_whole, 4),
            judged.verdict,
            *_times(seconds),
        ),
        [
            Target(f"{words}: recall@{_K}", recall, at_least=_WANTED_RECALL),
            Target(f"{words}: equal to the bit", equal, at_least=_WANTED_ROWS),
            Target(f"{words}: of those proposed whole", of_whole, at_least=1.0),
            Target(f"{words}: admitted by the gate", float(judged.admitted), at_least=1.0),
        ],
    )


def _encoded(plan: EnginePlan, data_set: str, spool: Path) -> _Asked:
    dataset, encoded = encoded_set(plan.data / data_set, "test", spool)
    count = plan.queries or len(dataset.answerable)
    return _Asked(
        Rows(encoded.documents, [*dataset.documents]),
        dataset.answerable[:count],
        dense_of(encoded.answerable[:count]),
        dataset.documents.parents,
    )


def _shards(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Split rows into shards, each with the position of its first row."""
    for first in range(0, len(rows.documents), SHARD_ROWS):
        part = slice(first, first + SHARD_ROWS)
        yield first, Rows(rows.vectors[part], rows.documents[part])


def _record(engine: Engine, rows: Rows) -> EngineRecord:
    positions, sample = sampled_positions(len(rows.documents)), SampleDigest()
    sample.add(Rows(rows.vectors[positions], [rows.documents[position] for position in positions.tolist()]))
    return EngineRecord(
        kind=engine.kind,
        rows=len(rows.documents),
        dimension=rows.vectors.shape[1],
        shards=tuple(shard_digest(shard) for _, shard in _shards(rows)),
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
