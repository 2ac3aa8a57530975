"""A large collection: upload time, time per query, and a service over it beside one that holds the corpus."""

import statistics
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from benchmarks.checkout import environment
from benchmarks.engines.collection import UploadTimes, uploaded
from benchmarks.engines.large_corpus import K, LargeCorpus, in_process, large_corpus, over_engine
from benchmarks.engines.plan import EnginePlan
from benchmarks.engines.servers import WORDS, kept
from benchmarks.engines.tiled import DATA
from benchmarks.markdown import Target, share, table, targets
from benchmarks.serving.cells import LoadCell, latency, measure, median, rate, ratio
from benchmarks.serving.load import LoadJob
from benchmarks.serving.processes import proportional_bytes
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest, taugate
from taugate.calibration.engines.search import ShardedIndex
from taugate.calibration.gate.indexes import share_found
from taugate.registry.catalog import find
from taugate.retrieval.engines.connect import URL, connect
from taugate.retrieval.engines.engine import EngineKind
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.release.verify import verify
from taugate.retrieval.vectors.similarity import Float32

HEADING = "A large collection"
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


def section(plan: EnginePlan) -> str:
    """Upload the collection where it is not there yet, and measure each engine."""
    corpus = large_corpus(plan)
    return "\n\n".join(
        [
            f"{plan.documents:,} documents: those of {DATA}, tiled, with a jittered unit vector each"
            f"{f' and texts cut to {plan.characters} characters' if plan.characters else ''}. {len(corpus.texts):,} queries of {DATA}, one client. Engines search with a "
            f"breadth of {plan.breadth}. *Engine* is the time until the candidates are there with vectors and "
            "documents, *rescore* that of scoring them again. The encoder, the policy and the model of relevance that are served are those of the sample data set.",
            *(_measured(plan, kind, corpus) for kind in plan.kinds),
        ]
    )


def _measured(plan: EnginePlan, kind: EngineKind, corpus: LargeCorpus) -> str:
    with kept(plan, kind) as url:
        engine = connect(kind, [url])
        record, took = uploaded(engine, corpus.tiled, corpus.vectors)
        record = record.model_copy(update={"breadth": plan.breadth})
        collection = engine.collection(record.collection, plan.breadth, time.monotonic() + _SECONDS)
        index = EngineIndex(collection, record.rows, _SECONDS)
        alone = _one_by_one(index, corpus.asked)
        exact = ShardedIndex(corpus.vectors)
        found = share_found(exact, corpus.asked, exact.search(corpus.asked, K), alone.top)
        here = in_process(corpus)
        there = over_engine(corpus, record, found, index)
        address = {URL: url}
        in_its_own = partial(taugate, precision="float32", python=plan.service_python)
        services = {
            "in the process": in_its_own(here),
            "over the engine": _with(in_its_own(there), address),
            "the sample": in_its_own(corpus.sample.folder.parent),
        }
        served = _take_turns(plan, services, corpus.texts)
    return (
        f"### {WORDS[kind]}\n\n{_queries_text(took, alone, found)}\n\n"
        f"{_services_text(served, verify(find(here)).index, _client_bytes(plan, kind))}\n\n"
        + targets(_goals(alone, served))
    )


def _queries_text(took: UploadTimes | None, alone: _Queries, found: float) -> str:
    rows = [
        [name, *(f"{value:.2f}" for value in np.quantile(times, [0.5, 0.99]))] for name, times in alone.stages.items()
    ]
    rows.append(["both", *(f"{value:.2f}" for value in np.quantile(alone.whole, [0.5, 0.99]))])
    times = f"Sending the documents took {took.sent:,.0f} s, the index {took.built:,.0f} s. " if took else ""
    return f"{times}recall@{K} is {share(found, 4)}.\n\n{table(('one query', 'p50, ms', 'p99, ms'), rows)}"


def _services_text(served: dict[str, _Served], index: IndexRecord, client: int) -> str:
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
    found = "" if index.recall is None else f", breadth {index.breadth}, recall@{index.depth} {share(index.recall, 4)}"
    heads = ("service, one client", "p50, ms", "p99, ms", "replies/s", "RSS, MB", "PSS, MB")
    return (
        f"The services take turns, without a cache, encoding included. The one in the process has an index of kind {index.kind}{found}. "
        f"Figures are medians of the rounds; the ratio is taken within a round. Their environment has what a service over an engine "
        f"needs, and no more. To import the engine's client takes {client / 1e6:,.0f} MB of RSS.\n\n{table(heads, rows)}"
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


def _one_by_one(index: EngineIndex, queries: Float32) -> _Queries:
    """Search with one query after the other, and time each and its stages."""
    for row in range(min(_WARM, len(queries))):
        index.find(queries[row : row + 1], K)
    found: list[TopK] = []
    whole: list[float] = []
    stages: dict[str, list[float]] = {"engine": [], "rescore": []}
    for row in range(len(queries)):
        spent: dict[str, float] = defaultdict(float)

        def observe(stage: str, seconds: float, spent: dict[str, float] = spent) -> None:
            spent[stage] += seconds

        began = time.perf_counter()
        found.append(index.find(queries[row : row + 1], K, observe=observe).top)
        whole.append(1000 * (time.perf_counter() - began))
        for stage, times in stages.items():
            times.append(1000 * spent[stage])
    top = TopK(np.concatenate([each.scores for each in found]), np.concatenate([each.positions for each in found]))
    return _Queries(top, whole, stages)


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


def _client_bytes(plan: EnginePlan, kind: EngineKind) -> int:
    """Resident memory that the engine's client takes, beside what every service has loaded."""
    url = "http://127.0.0.1" if kind == "milvus" else "postgresql://127.0.0.1/none"  # nobody is asked
    program = (
        "import os; from benchmarks.serving.processes import resident_bytes; "
        "from taugate.retrieval.engines import connect, index; before = resident_bytes(os.getpid()); "
        f"connect.connect({kind!r}, [{url!r}]); print(resident_bytes(os.getpid()) - before)"
    )
    command, variables = [str(plan.service_python), "-c", program], environment()
    return int(subprocess.run(command, check=True, env=variables, capture_output=True, text=True).stdout)


def _with(service: ServiceUnderTest, variables: dict[str, str]) -> ServiceUnderTest:
    return replace(service, name=f"{service.name} over an engine", environment=service.environment | variables)
