"""Every Prometheus metric of the service, on a registry of its own (docs/api.md).

Where several worker processes answer on one socket, the two collectors at the end show the metrics of all of them.
"""

import math
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from taugate.retrieval.query import Reason
from taugate.retrieval.release.manifest import Manifest

RELEASE_INFO, SIMILARITY = "taugate_release_info", "taugate_similarity"
SHADOW_INFO = "taugate_shadow_release_info"
# Set where several processes answer, before the first import of prometheus_client, which looks for it then.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
ReloadOutcome = Literal["loaded", "unchanged", "failed"]
# How the values of several processes become one gauge, as prometheus_client names it.
MultiprocessMode = Literal["livesum", "livemin", "livemax", "livemostrecent"]

# From the fastest cached reply to the default deadline, about three buckets a decade.
_REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# A search of a thousand documents takes 0.1 ms, a long batch through the encoder a second.
STAGE_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # up to the default TAUGATE_QUEUE_LIMIT
REFUSALS = (
    *("unauthorized", "forbidden", "rate_limited"),  # requests
    *("malformed", "headers_too_large", "receive_timeout", "unread", "connections"),  # connections
)
# These cannot be added up: when the service began, and how many files each may open.
_COMBINE = {"process_start_time_seconds": min, "process_max_fds": min}


class Metrics:
    """The metrics of one process; where several answer on one socket, any of them can show those of all."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter and histogram, which nothing here reads
        self.registry = CollectorRegistry()
        self.requests = Counter("taugate_requests", "Requests answered.", ["route", "code"], registry=self.registry)
        self.request_seconds = Histogram(
            "taugate_request_duration_seconds",
            "From the first byte of a request to the last of its reply.",
            ["route"],
            buckets=_REQUEST_SECONDS,
            registry=self.registry,
        )
        self.stage_seconds = Histogram(
            "taugate_stage_duration_seconds",
            "Time in one stage of answering.",
            ["stage"],
            buckets=STAGE_SECONDS,
            registry=self.registry,
        )
        self.batch_size = Histogram(
            "taugate_encode_batch_size", "Queries encoded together.", buckets=_BATCH_SIZES, registry=self.registry
        )
        self.cache_requests = Counter(
            "taugate_cache_requests", "Queries, by what the cache did for them.", ["outcome"], registry=self.registry
        )
        outcomes = ("hit", "miss", "error", "bypass")  # all from 0, so that the first of a kind is an increase
        self._cache_outcomes = {outcome: self.cache_requests.labels(outcome) for outcome in outcomes}
        self.redis_up = self._gauge(
            "taugate_redis_up", "Whether Redis answers; NaN where none is configured.", "livemin"
        )
        self.engine_up = self._gauge(
            "taugate_engine_up", "Whether the engine answers; NaN where no release needs one.", "livemin"
        )
        self.queue_depth = self._gauge("taugate_queue_depth", "Queries waiting or at work.", "livesum")
        self.results = Counter(
            "taugate_results", "Documents considered, by what became of them.", ["outcome"], registry=self.registry
        )
        self._kept, self._dropped = self.results.labels("kept"), self.results.labels("dropped")
        self.explored = Counter(
            "taugate_explored", "Results below the threshold that were shown to be judged.", registry=self.registry
        )
        self.empty_responses = Counter(
            "taugate_empty_responses", "Searches answered with no document.", ["reason"], registry=self.registry
        )
        for reason in get_args(Reason):
            self.empty_responses.labels(reason)
        self.queries_truncated = Counter(
            "taugate_queries_truncated",
            "Queries that are longer than the encoder reads; their replies are not calibrated.",
            registry=self.registry,
        )
        self.feedback = Counter("taugate_feedback", "Judgements of results.", ["outcome"], registry=self.registry)
        self.refused = Counter(
            "taugate_refused", "Requests and connections refused.", ["reason"], registry=self.registry
        )
        for refused in REFUSALS:
            self.refused.labels(refused)
        self.log_dropped = Counter(
            "taugate_log_dropped", "Log lines dropped, as too many waited to be written.", registry=self.registry
        )
        self.connections = self._gauge("taugate_connections", "Connections that are open.", "livesum")
        # Names come from the file of keys, so that there are no more than an operator made.
        self.key_requests = Counter(
            "taugate_key_requests", "Requests let through, by the name of their key.", ["key"], registry=self.registry
        )
        self.keys_reload_failed = self._gauge(
            "taugate_keys_reload_failed", "Whether keys changed and could not be read; those before stay.", "livemax"
        )
        names = ("release", "encoder", "policy")
        self.release_info = self._gauge(RELEASE_INFO, "The release in service.", "livemax", names)
        self._release_labels: tuple[str, ...] | None = None
        self._release_registry, self._shadow_registry = CollectorRegistry(), CollectorRegistry()
        self.release_threshold = self._gauge("taugate_release_threshold", "τ in force.")
        self.release_provisional = self._gauge(
            "taugate_release_provisional", "1 where too little evidence stands behind the threshold, else 0."
        )
        self.release_loaded = self._gauge("taugate_release_loaded_timestamp_seconds", "When the release was loaded.")
        self.reloads = Counter(
            "taugate_reloads",
            "Looks at which release is current, by what came of them.",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in get_args(ReloadOutcome):
            self.reloads.labels(outcome)
        self.reload_failed = self._gauge("taugate_reload_failed", "Whether the last reload failed.", "livemax")
        self.coe_reference = self._gauge("taugate_coe_reference", "COE at calibration.", names=("bound",))
        self.roe_reference = self._gauge("taugate_roe_reference", "ROE at calibration.", names=("bound",))

    def _gauge(
        self, name: str, meaning: str, mode: MultiprocessMode = "livemostrecent", names: Sequence[str] = ()
    ) -> Gauge:
        """Make a gauge.

        Args:
            names: Of its labels.
        """
        return Gauge(name, meaning, names, registry=self.registry, multiprocess_mode=mode)

    def scrape(self) -> CollectorRegistry:
        """Return a registry with all that a scraper gets: of this process, or of all that answer on its socket."""
        folder = os.environ.get(SHARED_FOLDER)
        registry = CollectorRegistry()
        if folder is None:
            registry.register(self.registry)
            registry.register(self._release_registry)
            registry.register(self._shadow_registry)
            ProcessCollector(registry=registry)
        else:
            registry.register(AllWorkersCollector(folder, self._release_registry))
            registry.register(WorkerProcessesCollector(Path(folder)))
        return registry

    def observe_stage(self, stage: str, seconds: float) -> None:
        """Record how many seconds one stage took."""
        self.stage_seconds.labels(stage).observe(seconds)

    def observe_batch(self, queries: int) -> None:
        """Record how many queries were encoded together."""
        self.batch_size.observe(queries)

    def observe_cache(self, outcome: str) -> None:
        """Record what the cache did for one query: hit, miss, error or bypass."""
        self._cache_outcomes[outcome].inc()

    def observe_reply(self, kept: int, considered: int, reason: Reason | None, explored: int = 0) -> None:
        """Record one reply.

        Args:
            kept: Numbers of documents, those explored among the kept ones.
            considered: Numbers of documents, those explored among the kept ones.
            reason: Why none was kept, None where some were.
            explored: Numbers of documents, those explored among the kept ones.
        """
        self._kept.inc(kept)
        self._dropped.inc(considered - kept)
        if explored:
            self.explored.inc(explored)
        if reason is not None:
            self.empty_responses.labels(reason).inc()

    def new_release_registry(self) -> CollectorRegistry:
        """Make a registry for metrics of the release that goes into service; it replaces that of the one before."""
        self._release_registry = CollectorRegistry()
        return self._release_registry

    def new_shadow_registry(self) -> CollectorRegistry:
        """Make a registry for metrics of the shadow release; it replaces that of the one before."""
        self._shadow_registry = CollectorRegistry()
        return self._shadow_registry

    def observe_reload(self, outcome: ReloadOutcome) -> None:
        """Record the outcome of checking which release is current."""
        self.reloads.labels(outcome).inc()
        self.reload_failed.set(outcome == "failed")

    def set_release(self, manifest: Manifest, loaded_at: float) -> None:
        """Describe the release that is in service now.

        Args:
            manifest: Of the release.
            loaded_at: Unix time in seconds.
        """
        if self._release_labels is not None:
            self.release_info.labels(*self._release_labels).set(0)
            if SHARED_FOLDER not in os.environ:  # a series that workers share cannot be removed
                self.release_info.remove(*self._release_labels)
        self._release_labels = (manifest.release_id, manifest.answering.name, manifest.policy.kind)
        self.release_info.labels(*self._release_labels).set(1)
        self.release_threshold.set(math.nan if manifest.policy.tau is None else manifest.policy.tau)
        self.release_provisional.set(manifest.state == "provisional")
        self.release_loaded.set(loaded_at)
        calibration = manifest.metrics["calibration"]
        for gauge, reference in ((self.coe_reference, calibration.coe), (self.roe_reference, calibration.roe)):
            for bound in ("lower", "mean", "upper"):
                gauge.labels(bound).set(getattr(reference, bound))


class AllWorkersCollector(Collector):
    """Collects the metrics that all workers keep in one folder."""

    def __init__(self, folder: str, release_registry: CollectorRegistry) -> None:
        """Read a folder.

        Args:
            folder: Of the workers.
            release_registry: Metrics of the release in service, as this process has them.
        """
        self._shared = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        self._release_registry = release_registry

    def collect(self) -> Iterable[Metric]:
        """Yield every metric, without buckets and labels of releases that are no longer in service."""
        bounds = {sample.labels["le"] for sample in _samples(self._release_registry.collect(), f"{SIMILARITY}_bucket")}
        for metric in self._shared.collect():  # type: ignore[no-untyped-call]
            if metric.name in {RELEASE_INFO, SHADOW_INFO}:
                metric.samples = [sample for sample in metric.samples if sample.value]
            elif metric.name == SIMILARITY and bounds:
                metric.samples = [sample for sample in metric.samples if sample.labels.get("le", "+Inf") in bounds]
            yield metric


def _samples(metrics: Iterable[Metric], name: str) -> Iterable[Sample]:
    return (sample for metric in metrics for sample in metric.samples if sample.name == name)


class WorkerProcessesCollector(Collector):
    """Collects the metrics of prometheus_client's ProcessCollector, summed over the workers that are alive."""

    def __init__(self, folder: Path) -> None:
        """Find the workers in a folder.

        Args:
            folder: In which each has files that end with its process id.
        """
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Yield one value a metric; memory that workers share, such as the index, counts once for each of them."""
        found: dict[str, list[Metric]] = {}
        for pid in {path.stem.rpartition("_")[2] for path in self._folder.glob("*.db")}:
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():  # empty for a dead one
                found.setdefault(metric.name, []).append(metric)
        for name, metrics in found.items():
            value = _COMBINE.get(name, sum)([metric.samples[0].value for metric in metrics])
            family = CounterMetricFamily if metrics[0].type == "counter" else GaugeMetricFamily
            yield family(name, metrics[0].documentation, value=value)
