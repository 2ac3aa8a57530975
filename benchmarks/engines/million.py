"""A large collection: what uploading it takes, one query, and a service over it beside one that holds the corpus."""

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.checkout import environment
from benchmarks.engines.collection import UploadTimes, uploaded
from benchmarks.engines.plan import EnginePlan
from benchmarks.engines.releases import Source, make_current
from benchmarks.engines.servers import WORDS, kept
from benchmarks.engines.tiled import DATA, TiledCorpus, tiled
from benchmarks.markdown import Target, share, table, targets
from benchmarks.serving.cells import LoadCell, latency, measure, median, rate, ratio
from benchmarks.serving.load import LoadJob
from benchmarks.serving.processes import proportional_bytes
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest, taugate
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.engines.search import ShardedIndex
from taugate.calibration.gate.baseline import index_record
from taugate.calibration.gate.indexes import kinds_asked, recall, set_breadth, share_found
from taugate.ingestion.dataset.sample import write_sample
from taugate.registry.catalog import find
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.engines.connect import URL, connect
from taugate.retrieval.engines.engine import EngineKind
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex
from taugate.retrieval.index.build import build
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.relevance import ReadDocuments
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.release.verify import verify
from taugate.retrieval.vectors.similarity import Float32

HEADING = "A large collection"
_K, _CHOOSING, _MARGIN = 10, 500, 0.005  # as benchmarks.serving.million_documents chooses the breadth of its index
_SECONDS = 60.0  # for one question
_WARM = 100  # queries that are not timed
_P50, _P99, _TIMES, _MORE = 8.0, 25.0, 2.0, 100.0  # ms, ms, of the service in the process, MB


@dataclass(frozen=True)
class _Queries:
    """One client's queries: what was found, and the milliseconds of each, in all and by stage."""

    top: TopK
    whole: list[float]
    stages: dict[str, list[float]]


@dataclass(frozen=True)
class _Served:
    """Loads of one service, one a round, and its memory after them: resident and proportional bytes."""

    cells: list[LoadCell]
    resident: list[int]
    proportional: list[int]


@dataclass(frozen=True)
class _Corpus:
    """A corpus with what is searched for in it.

    tiled: its files. vectors: (N, d). texts, asked: the queries, and their vectors. sample: release whose encoder and
    policy are served.
    """

    tiled: TiledCorpus
    vectors: ShardedVectors
    texts: list[str]
    asked: Float32
    sample: Source

    def read(self, positions: np.ndarray) -> ReadDocuments:
        """Read what the model of relevance compares."""
        return ReadDocuments(self.vectors[positions], self.vectors.lengths[positions])


def section(plan: EnginePlan) -> str:
    """Upload the collection where it is not there yet, and measure each engine."""
    corpus = _corpus(plan)
    return "\n\n".join(
        [
            f"{plan.documents:,} documents: those of {DATA}, tiled, with a jittered unit vector each"
            f"{f' and texts cut to {plan.characters} characters' if plan.characters else ''}. {len(corpus.texts):,} queries of {DATA}, one client. Engines search with a "
            f"breadth of {plan.breadth}. *Engine* is the time until the candidates are there with vectors and "
            "documents, *rescore* that of scoring them again. The encoder, the policy and the model of relevance that are served are those of the sample data set.",
            *(_measured(plan, kind, corpus) for kind in plan.kinds),
        ]
    )


def _measured(plan: EnginePlan, kind: EngineKind, corpus: _Corpus) -> str:
    with kept(plan, kind) as url:
        engine = connect(kind, [url])
        record, took = uploaded(engine, corpus.tiled, corpus.vectors)
        record = record.model_copy(update={"breadth": plan.breadth})
        collection = engine.collection(record.collection, plan.breadth, time.monotonic() + _SECONDS)
        index = EngineIndex(collection, record.rows, _SECONDS)
        alone = _one_by_one(index, corpus.asked)
        exact = ShardedIndex(corpus.vectors)
        found = share_found(exact, corpus.asked, exact.search(corpus.asked, _K), alone.top)
        here, described = _in_process(plan, corpus)
        there = _over_engine(plan, corpus, record, found, index)
        address = {URL: url}
        services = {
            "in the process": taugate(here, "float32"),
            "over the engine": _with(taugate(there, "float32"), address),
            "the sample": taugate(corpus.sample.folder.parent, "float32"),
        }
        served = _take_turns(plan, services, corpus.texts)
    return (
        f"### {WORDS[kind]}\n\n{_queries_text(took, alone, found)}\n\n{_services_text(served, described)}\n\n"
        + targets(_goals(alone, served))
    )


def _queries_text(took: UploadTimes | None, alone: _Queries, found: float) -> str:
    rows = [
        [name, *(f"{value:.2f}" for value in np.quantile(times, [0.5, 0.99]))] for name, times in alone.stages.items()
    ]
    rows.append(["both", *(f"{value:.2f}" for value in np.quantile(alone.whole, [0.5, 0.99]))])
    times = f"Sending the documents took {took.sent:,.0f} s, the index {took.built:,.0f} s. " if took else ""
    return f"{times}recall@{_K} is {share(found, 4)}.\n\n{table(('one query', 'p50, ms', 'p99, ms'), rows)}"


def _services_text(served: dict[str, _Served], described: str) -> str:
    rows = [
        (
            name,
            *(f"{median(each.cells, latency(p)):.2f}" for p in (50, 99)),
            f"{median(each.cells, rate):,.0f}",
            f"{statistics.median(each.resident) / 1e6:,.0f}",
            f"{statistics.median(each.proportional) / 1e6:,.0f}",
        )
        for name, each in served.items()
    ]
    heads = ("service, one client", "p50, ms", "p99, ms", "replies/s", "RSS, MB", "PSS, MB")
    return (
        f"The services take turns, without a cache, encoding included. The one in the process has an index of kind {described}. "
        f"Figures are medians of the rounds; the ratio is taken within a round.\n\n{table(heads, rows)}"
    )


def _goals(alone: _Queries, served: dict[str, _Served]) -> list[Target]:
    middle, slow = np.quantile(alone.whole, [0.5, 0.99]).tolist()
    here, there, sample = (served[name] for name in ("in the process", "over the engine", "the sample"))
    more = {
        name: (statistics.median(getattr(there, name)) - statistics.median(getattr(sample, name))) / 1e6
        for name in ("resident", "proportional")
    }
    return [
        Target("engine and rescoring, p50", middle, at_most=_P50, unit=" ms"),
        Target("engine and rescoring, p99", slow, at_most=_P99, unit=" ms"),
        Target("service, p50 over that in the process", ratio(there.cells, here.cells, latency(50)), at_most=_TIMES),
        Target("service, RSS over that with the sample", more["resident"], at_most=_MORE, unit=" MB"),
        Target("service, PSS over that with the sample", more["proportional"], at_most=_MORE, unit=" MB"),
    ]


def _corpus(plan: EnginePlan) -> _Corpus:
    """Make the corpus, and the release of the sample, where an earlier run has not."""
    plan.work.mkdir(parents=True, exist_ok=True)
    sample, releases = plan.work / "sample", plan.work / "sample-releases"
    if not (releases / "current").is_file():
        write_sample(sample)
        command = [sys.executable, "-m", "taugate", "calibrate", str(sample), "--releases", str(releases)]
        subprocess.run(command, check=True, env=environment(), stdout=subprocess.DEVNULL)
    source = Source(find(releases))
    files = tiled(plan.data, plan.work / f"tiled-{plan.documents}-{plan.characters}", plan.documents, plan.characters)
    encoder, texts = source.encoder(), files.queries()[: plan.queries or None]
    vectors = ShardedVectors.open(str(files.encoded), encoder.sha256, files.folder)
    return _Corpus(files, vectors, texts, encoder.encode(texts, "query"), source)


def _one_by_one(index: EngineIndex, queries: Float32) -> _Queries:
    """Search with one query after the other, and time each and its stages."""
    for row in range(min(_WARM, len(queries))):
        index.find(queries[row : row + 1], _K)
    found: list[TopK] = []
    whole: list[float] = []
    stages: dict[str, list[float]] = {"engine": [], "rescore": []}
    for row in range(len(queries)):
        spent: dict[str, float] = defaultdict(float)

        def observe(stage: str, seconds: float, spent: dict[str, float] = spent) -> None:
            spent[stage] += seconds

        began = time.perf_counter()
        found.append(index.find(queries[row : row + 1], _K, observe=observe).top)
        whole.append(1000 * (time.perf_counter() - began))
        for stage, times in stages.items():
            times.append(1000 * spent[stage])
    top = TopK(np.concatenate([each.scores for each in found]), np.concatenate([each.positions for each in found]))
    return _Queries(top, whole, stages)


def _in_process(plan: EnginePlan, corpus: _Corpus) -> tuple[Path, str]:
    """Write a release that holds the corpus, where there is none; returns its directory, and its index in words."""
    releases = corpus.tiled.folder / "in-process"
    if not (releases / "current").is_file():
        index, record = _index(corpus)
        stored, _ = corpus.sample.relevance(corpus.vectors, corpus.asked, corpus.read)
        golden = corpus.sample.golden(index, DocumentStore(corpus.tiled.spool))
        make_current(releases, corpus.sample.in_process(releases, index, record, corpus.tiled.spool, golden, stored))
    record = verify(find(releases)).index
    found = (
        "" if record.recall is None else f", breadth {record.breadth}, recall@{record.depth} {share(record.recall, 4)}"
    )
    return releases, f"{record.kind}{found}"


def _index(corpus: _Corpus) -> tuple[AnyIndex, IndexRecord]:
    """Build the index that `--index auto` tries first for so many documents."""
    vectors = np.concatenate([block for _, block in corpus.vectors.blocks()])
    flat, kinds = FlatIndex.build(vectors), kinds_asked("auto", len(vectors))
    if not kinds:
        return flat, IndexRecord(kind="flat", metric="cosine", documents=len(vectors))
    index, queries = build(kinds[0], vectors), corpus.asked[-_CHOOSING:]
    if isinstance(index, ApproximateIndex):
        set_breadth(index, flat, queries, _K, _MARGIN)
    return index, index_record(index, recall(index, flat, queries, flat.search(queries, _K)), _K)


def _over_engine(plan: EnginePlan, corpus: _Corpus, record: EngineRecord, found: float, index: EngineIndex) -> Path:
    """Write a release over the collection, where there is none; returns its directory."""
    releases = corpus.tiled.folder / f"over-{record.kind}-{plan.breadth}"
    if not (releases / "current").is_file():
        _, computed = corpus.sample.relevance(corpus.vectors, corpus.asked, corpus.read)
        golden = corpus.sample.golden(index, DocumentStore(corpus.tiled.spool))
        make_current(releases, corpus.sample.over_engine(releases, record, found, golden, computed))
    return releases


def _take_turns(plan: EnginePlan, services: dict[str, ServiceUnderTest], texts: list[str]) -> dict[str, _Served]:
    """Load one service after the other, each started anew in every round, and weigh it."""
    served = {name: _Served([], [], []) for name in services}
    for number in range(plan.rounds):
        for name, service in [*services.items()][:: -1 if number % 2 else 1]:
            requests = [service.request(text) for text in texts]
            order = [*range(len(texts))]
            with Server(service) as server:
                measure(server, requests, LoadJob(server.port, order[-_WARM:], min(plan.seconds, 2.0), clients=1))
                served[name].cells.append(
                    measure(server, requests, LoadJob(server.port, order, plan.seconds, clients=1))
                )
                served[name].resident.append(server.resident_bytes)
                served[name].proportional.append(proportional_bytes(server.pid))
    return served


def _with(service: ServiceUnderTest, variables: dict[str, str]) -> ServiceUnderTest:
    return replace(service, name=f"{service.name} over an engine", environment=service.environment | variables)
