"""Every Prometheus metric of the service, on a registry of its own (docs/api.md)."""

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


class SharedCollector(Collector):
    """The metrics in a folder of all workers; of_release: those of the release in service, in this process."""

    def __init__(self, folder: str, of_release: CollectorRegistry) -> None:
        self._shared = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        self._of_release = of_release

    def collect(self) -> Iterable[Metric]:
        """Every metric, with the buckets of the release in service alone."""
        bounds = {sample.labels["le"] for sample in _samples(self._of_release.collect(), f"{SIMILARITY}_bucket")}
        for metric in self._shared.collect():  # type: ignore[no-untyped-call]
            if metric.name in {RELEASE_INFO, SHADOW_INFO}:
                metric.samples = [sample for sample in metric.samples if sample.value]
            elif metric.name == SIMILARITY and bounds:
                metric.samples = [sample for sample in metric.samples if sample.labels.get("le", "+Inf") in bounds]
            yield metric


def _samples(metrics: Iterable[Metric], name: str) -> Iterable[Sample]:
    return (sample for metric in metrics for sample in metric.samples if sample.name == name)


# What cannot be added up: when the service began, and how many files each may open.
_COMBINED = {"process_start_time_seconds": min, "process_max_fds": min}


class WorkersCollector(Collector):
    """The metrics of ProcessCollector, summed over the workers alive; folder: where they keep them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """One value each; memory that workers share, such as the mapped index, is counted once in each of them."""
        found: dict[str, list[Metric]] = {}
        for pid in {path.stem.rpartition("_")[2] for path in self._folder.glob("*.db")}:
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():  # nothing of a dead one
                found.setdefault(metric.name, []).append(metric)
        for name, metrics in found.items():
            value = _COMBINED.get(name, sum)([metric.samples[0].value for metric in metrics])
            family = CounterMetricFamily if metrics[0].type == "counter" else GaugeMetricFamily
            yield family(name, metrics[0].documentation, value=value)


# Set where several processes answer, before the first import of prometheus_client, which looks for it then.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
Reloaded = Literal["loaded", "unchanged", "failed"]
Combined = Literal["livesum", "livemin", "livemax", "livemostrecent"]

# From the fastest cached reply to the default deadline, about three buckets a decade.
_REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# A search of a thousand documents takes 0.1 ms, a long batch through the encoder a second.
STAGE_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # up to the default TAUGATE_QUEUE_LIMIT
REFUSALS = (
    *("unauthorized", "forbidden", "rate_limited"),  # requests
    *("malformed", "headers_too_large", "receive_timeout", "unread", "connections"),  # connections
)


class Metrics:
    """The metrics of one process, and where several answer, of all."""

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
        self.redis_up = self._gauge("taugate_redis_up", "Whether Redis answers.", "livemin")
        self.queue_depth = self._gauge("taugate_queue_depth", "Queries waiting or at work.", "livesum")
        self.results = Counter(
            "taugate_results", "Documents considered, by what became of them.", ["outcome"], registry=self.registry
        )
        self._kept, self._dropped = self.results.labels("kept"), self.results.labels("dropped")
        self.empty_responses = Counter(
            "taugate_empty_responses", "Searches answered with no document.", ["reason"], registry=self.registry
        )
        for reason in get_args(Reason):
            self.empty_responses.labels(reason)
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
        self._announced: tuple[str, ...] | None = None
        self._of_release, self._of_shadow = CollectorRegistry(), CollectorRegistry()
        self.release_threshold = self._gauge("taugate_release_threshold", "τ in force.")
        self.release_provisional = self._gauge(
            "taugate_release_provisional", "Whether too little stands behind the threshold."
        )
        self.release_loaded = self._gauge("taugate_release_loaded_timestamp_seconds", "When the release was loaded.")
        self.reloads = Counter(
            "taugate_reloads",
            "Looks at which release is current, by what came of them.",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in get_args(Reloaded):
            self.reloads.labels(outcome)
        self.reload_failed = self._gauge("taugate_reload_failed", "Whether the last reload failed.", "livemax")
        self.coe_reference = self._gauge("taugate_coe_reference", "COE at calibration.", names=("bound",))
        self.roe_reference = self._gauge("taugate_roe_reference", "ROE at calibration.", names=("bound",))

    def _gauge(
        self, name: str, meaning: str, combined: Combined = "livemostrecent", names: Sequence[str] = ()
    ) -> Gauge:
        """A gauge; combined: how the values of several processes become one."""
        return Gauge(name, meaning, names, registry=self.registry, multiprocess_mode=combined)

    def exposed(self) -> CollectorRegistry:
        """What is told to whoever scrapes: of this process, or of all that answer on the same socket."""
        folder = os.environ.get(SHARED_FOLDER)
        registry = CollectorRegistry()
        if folder is None:
            registry.register(self.registry)
            registry.register(self._of_release)
            registry.register(self._of_shadow)
            ProcessCollector(registry=registry)
        else:
            registry.register(SharedCollector(folder, self._of_release))
            registry.register(WorkersCollector(Path(folder)))
        return registry

    def observe_stage(self, stage: str, seconds: float) -> None:
        """Record the time one stage took."""
        self.stage_seconds.labels(stage).observe(seconds)

    def observe_batch(self, queries: int) -> None:
        """Record how many queries were encoded together."""
        self.batch_size.observe(queries)

    def observe_cache(self, outcome: str) -> None:
        """Record what the cache did for one query: hit, miss, error or bypass."""
        self._cache_outcomes[outcome].inc()

    def observe_reply(self, kept: int, considered: int, reason: Reason | None) -> None:
        """Record what was kept and dropped for one query."""
        self._kept.inc(kept)
        self._dropped.inc(considered - kept)
        if reason is not None:
            self.empty_responses.labels(reason).inc()

    def of_release(self) -> CollectorRegistry:
        """A registry for metrics of the release that comes into service, in the place of the one before."""
        self._of_release = CollectorRegistry()
        return self._of_release

    def of_shadow(self) -> CollectorRegistry:
        """The same for the release that is tried beside it."""
        self._of_shadow = CollectorRegistry()
        return self._of_shadow

    def observe_reload(self, outcome: Reloaded) -> None:
        """Record what came of a look at which release is current."""
        self.reloads.labels(outcome).inc()
        self.reload_failed.set(outcome == "failed")

    def announce(self, manifest: Manifest, loaded_at: float) -> None:
        """Describe the release now in service; loaded_at: Unix time in seconds."""
        if self._announced is not None:
            self.release_info.labels(*self._announced).set(0)  # where several processes answer, it cannot be taken back
            if SHARED_FOLDER not in os.environ:
                self.release_info.remove(*self._announced)
        self._announced = (manifest.release_id, manifest.encoder.name, manifest.policy.kind)
        self.release_info.labels(*self._announced).set(1)
        self.release_threshold.set(math.nan if manifest.policy.tau is None else manifest.policy.tau)
        self.release_provisional.set(manifest.state == "provisional")
        self.release_loaded.set(loaded_at)
        calibration = manifest.metrics["calibration"]
        for gauge, reference in ((self.coe_reference, calibration.coe), (self.roe_reference, calibration.roe)):
            for bound in ("lower", "mean", "upper"):
                gauge.labels(bound).set(getattr(reference, bound))
