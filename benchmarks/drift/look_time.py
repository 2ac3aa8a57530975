"""Processor time of the looks themselves, in a process that does nothing else."""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import numpy as np
from prometheus_client import CollectorRegistry

from benchmarks.drift.traffic import Pool
from benchmarks.drift.worlds import DriftWorld
from taugate.drift.observations import query_keys
from taugate.retrieval.query import Query
from taugate.service.drift.analysis import Canary, TrafficAnalysis
from taugate.service.drift.query_log import ServedReply
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.pipeline.record import RESULT, SearchRecord
from taugate.service.pipeline.search import SearchPipeline
from taugate.service.settings import Settings

_LOOKS, _SHOWS = 60, 10
_OF_A_LOOK = 1500  # queries


def microseconds_of_a_query(here: DriftWorld) -> float:
    """Time the alarms on blocks of queries; the median of microseconds a query."""
    rng, monitor = np.random.default_rng(0), here.monitor()
    times: list[float] = []
    for _ in range(_LOOKS):
        seen = here.pool.draw(_OF_A_LOOK, rng)
        texts = [f"query {key}" for key in seen.key]
        began = time.thread_time()
        query_keys(texts)
        monitor.update(seen)
        times.append(1e6 * (time.thread_time() - began) / _OF_A_LOOK)
    return float(np.median(times))


def kilobytes_of_the_alarms(here: DriftWorld) -> tuple[float, float]:
    """Measure what the alarms keep in a process after 200,000 distinct queries, and what they leave in Redis."""
    rng, queries = np.random.default_rng(0), 200_000
    seen = replace(here.pool.draw(queries, rng), key=np.arange(queries, dtype=np.uint64))
    tracemalloc.start()
    monitor = here.monitor()
    monitor.update(seen)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept / 1000, len(monitor.pack()) / 1000


def share_of_a_processor(here: DriftWorld, rate: int) -> tuple[float, float, float]:
    """Return the milliseconds to update the alarms and to show the window, and the processor share of both."""
    release, ordinary = here.release, here.pool
    pipeline, name = SearchPipeline(release), release.manifest.release_id
    canary, workers = Canary(release, pipeline.single_threaded), WorkerStore(None, name, 3600)
    analysis = TrafficAnalysis(release, canary, Settings(releases=name), CollectorRegistry(), workers)
    rng = np.random.default_rng(0)
    analysis.analyze([], [])  # the first asks the golden queries
    looks = [_timed(analysis, _second(ordinary, 5 * rate, rng)) for _ in range(_LOOKS)]
    shows = []
    for _ in range(_SHOWS):
        analysis._window_set_at = -np.inf
        shows.append(_timed(analysis, []))
    pipeline.close()
    a_look, a_show = float(np.median(looks)), float(np.median(shows))
    return a_look, a_show, (a_look / 5 + a_show / 15) / 1000


def _second(ordinary: Pool, rate: int, rng: np.random.Generator) -> list[ServedReply]:
    seen = ordinary.draw(rate, rng)
    rows, nothing, now = np.concatenate([seen.top, seen.random], axis=1), np.empty(0, dtype=RESULT), time.time()
    records = [
        SearchRecord(b"", nothing, row, int(kept), 5, 0, None) for kept, row in zip(seen.kept, rows, strict=True)
    ]
    return [
        ServedReply(now, uuid4().hex, Query(f"query {key}", 5), None, record)
        for key, record in zip(seen.key, records, strict=True)
    ]


def _timed(analysis: TrafficAnalysis, seen: list[ServedReply]) -> float:
    analysis._alarms_updated_at = -np.inf
    return _spent(lambda: analysis.analyze(seen, []))


def _spent(work: Callable[[], object]) -> float:
    """Milliseconds of a processor."""
    began = time.thread_time()
    work()
    return 1000 * (time.thread_time() - began)
