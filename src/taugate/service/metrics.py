"""All Prometheus metrics of the service, on a separate registry (docs/api.md).

If several worker processes share a socket, the two collectors at the end show the metrics of all workers.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Generic, Literal, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from taugate.release.layout import creation_time
from taugate.release.manifest import ReleaseManifest
from taugate.retrieval.query import Answer, GateReason, Reason, Skipped

RELEASE_INFO, SIMILARITY = "taugate_release_info", "taugate_similarity"
SHADOW_INFO, RELEASE_PSI = "taugate_shadow_release_info", "taugate_release_psi"
OVER_CERTIFIED = "taugate_release_documents_over_certified"
# Environment variable that prometheus_client reads on its first import; set if there are several workers.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
ReloadOutcome = Literal["loaded", "unchanged", "failed"]
# From the fastest cached reply to the default deadline, about three buckets per decade.
_REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# A search of a thousand documents takes 0.1 ms, encoding a long batch a second.
STAGE_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # up to the default TAUGATE_QUEUE_LIMIT
_CACHE_OUTCOMES = ("hit", "miss", "error", "bypass")
REFUSALS = (
    *("unauthorized", "forbidden", "rate_limited", "overloaded", "bad_request", "headers_too_large"),  # requests
    *("malformed", "receive_timeout", "unread", "connections"),  # connections
)
_UNANSWERABLE: Reason = "unanswerable"  # a query that the release refuses; its request is answered
# These values must not be added up: the start time of the service, and the open-file limit of a process.
_COMBINE = {"process_start_time_seconds": min, "process_max_fds": min}


# How prometheus_client combines the gauges of several processes.
MultiprocessMode = Literal["livesum", "livemin", "livemax", "livemostrecent"]
M = TypeVar("M", Counter, Gauge, Histogram)


class Declared(Generic[M]):
    """A declaration; the attribute of an instance is the metric itself, which MetricGroup sets."""

    def __init__(self, make: Callable[[CollectorRegistry], M]) -> None:
        """Make the metric of an instance with `make`, from its registry."""
        self.make: Callable[[CollectorRegistry], M] = make

    def __get__(self, instance: object, owner: type) -> M:
        """Fail, because the attribute of an instance hides the declaration of its class."""
        raise AttributeError("metrics exist after MetricGroup.__init__")


class MetricGroup:
    """Base of classes that declare their metrics as attributes; every instance registers its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics that the class declares, in its order."""
        self.registry = registry
        for name, declared in vars(type(self)).items():
            if isinstance(declared, Declared):
                setattr(self, name, declared.make(registry))


def counter(name: str, meaning: str, *labels: str, values: Iterable[str] = ()) -> Declared[Counter]:
    """Declare a counter. Its name is without `_total`; `values` of its only label start at 0 to count the first."""

    def make(registry: CollectorRegistry) -> Counter:
        made = Counter(name, meaning, labels, registry=registry)
        for value in values:
            made.labels(value)
        return made

    return Declared(make)


def gauge(name: str, meaning: str, *labels: str, mode: MultiprocessMode = "livemostrecent") -> Declared[Gauge]:
    """Declare a gauge, whose values in several processes are combined by `mode`."""
    return Declared(lambda registry: Gauge(name, meaning, labels, registry=registry, multiprocess_mode=mode))


def histogram(name: str, meaning: str, *labels: str, buckets: Iterable[float]) -> Declared[Histogram]:
    """Declare a histogram with the upper bounds of its buckets."""
    bounds = tuple(buckets)
    return Declared(lambda registry: Histogram(name, meaning, labels, buckets=bounds, registry=registry))


class Metrics(MetricGroup):
    """The metrics of a process. If several workers share a socket, any of them can show the metrics of all."""

    requests = counter("taugate_requests", "Requests handled, by route and HTTP status.", "route", "code")
    request_seconds = histogram(
        "taugate_request_duration_seconds",
        "Time from the start of a request to the end of its reply.",
        "route",
        buckets=_REQUEST_SECONDS,
    )
    stage_seconds = histogram(
        "taugate_stage_duration_seconds", "Time spent in each stage of a request.", "stage", buckets=STAGE_SECONDS
    )
    batch_size = histogram("taugate_encode_batch_size", "Queries per encoder batch.", buckets=_BATCH_SIZES)
    cache_requests = counter("taugate_cache_requests", "Cache lookups, by outcome.", "outcome", values=_CACHE_OUTCOMES)
    redis_up = gauge("taugate_redis_up", "1 if Redis is responding, else 0; NaN if none is configured.", mode="livemin")
    engine_up = gauge(
        "taugate_engine_up", "1 if the engine is responding, else 0; NaN if no release needs one.", mode="livemin"
    )
    queue_depth = gauge("taugate_queue_depth", "Queries waiting or in progress.", mode="livesum")
    stage_replies = counter(
        "taugate_rerank_replies",
        "Replies of a release with two stages: ranked by the second stage, or why they are the first stage's.",
        "outcome",
        values=("ranked", *get_args(Skipped)),
    )
    results = counter(
        "taugate_results", "Retrieved documents, by outcome (kept or dropped).", "outcome", values=("kept", "dropped")
    )
    explored = counter("taugate_explored", "Results below the threshold that were returned in order to be judged.")
    empty_responses = counter(
        "taugate_empty_responses",
        "Searches that returned no results, by reason.",
        "reason",
        values=dict.fromkeys((*get_args(Reason), *get_args(GateReason))),
    )
    queries_truncated = counter(
        "taugate_queries_truncated", "Queries longer than the encoder can read; their replies are not calibrated."
    )
    feedback = counter("taugate_feedback", "Judgements received, by outcome.", "outcome")
    refused = counter(
        "taugate_refused",
        "Requests, connections and queries refused, by reason.",
        "reason",
        values=(*REFUSALS, _UNANSWERABLE),
    )
    log_dropped = counter("taugate_log_dropped", "Log lines dropped because stderr was read too slowly.")
    connections = gauge("taugate_connections", "Open connections.", mode="livesum")
    # The number of names is bounded, because they come from the operator's list of keys.
    key_requests = counter("taugate_key_requests", "Authorized requests, by name of the API key.", "key")
    keys_reload_failed = gauge(
        "taugate_keys_reload_failed",
        "1 if the API keys changed but cannot be read, so that the previous ones remain in force, else 0.",
        mode="livemax",
    )
    key_expires = gauge(
        "taugate_key_expires_timestamp_seconds",
        "Unix time at which an API key expires, by its name; NaN for a key that was removed.",
        "key",
    )
    release_info = gauge(
        RELEASE_INFO, "The release in service.", "release", "encoder", "policy", "state", mode="livemax"
    )
    release_threshold = gauge("taugate_release_threshold", "Threshold τ of the release in service.")
    release_rho = gauge("taugate_release_rho", "Threshold ρ of the release in service; NaN if it refuses no query.")
    release_psi = gauge(
        RELEASE_PSI, "Percentile ψ of Γ that is τ of the release in service; absent if its rule has none."
    )
    release_provisional = gauge(
        "taugate_release_provisional", "1 if the threshold rests on too little evidence, else 0."
    )
    release_documents_over_certified = gauge(
        OVER_CERTIFIED,
        "Documents of the release in service, divided by those of the release that chose its thresholds; absent for a "
        "run, whose store cannot be counted.",
    )
    release_created = gauge("taugate_release_created_timestamp_seconds", "Time at which the release was made.")
    release_loaded = gauge("taugate_release_loaded_timestamp_seconds", "Time at which the release was loaded.")
    reloads = counter(
        "taugate_reloads", "Release reload checks, by outcome.", "outcome", values=get_args(ReloadOutcome)
    )
    reload_failed = gauge("taugate_reload_failed", "1 if the last reload failed, else 0.", mode="livemax")
    coe_reference = gauge(
        "taugate_coe_reference", "COE (share of correct documents above θ) at calibration, with its interval.", "bound"
    )
    roe_reference = gauge(
        "taugate_roe_reference", "ROE (share of random documents above θ) at calibration, with its interval.", "bound"
    )

    def __init__(self) -> None:
        # Each counter and histogram would have a second series with its creation time, which no query uses.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        super().__init__(CollectorRegistry())
        self._cache_outcomes = {outcome: self.cache_requests.labels(outcome) for outcome in _CACHE_OUTCOMES}
        self._kept, self._dropped = self.results.labels("kept"), self.results.labels("dropped")
        self._release_labels: tuple[str, ...] | None = None
        self._expiring: set[str] = set()  # names of keys that expire, or did until they were removed
        self._release_registry, self._shadow_registry = CollectorRegistry(), CollectorRegistry()

    def scrape(self) -> CollectorRegistry:
        """Return a registry with the metrics of this process, or of all workers that share its socket."""
        folder = os.environ.get(SHARED_FOLDER)
        registry = CollectorRegistry()
        if folder is None:
            registry.register(_KnownMetrics(self.registry))
            registry.register(self._release_registry)
            registry.register(self._shadow_registry)
            ProcessCollector(registry=registry)
        else:
            registry.register(AllWorkersCollector(folder, self._release_registry))
            registry.register(WorkerProcessesCollector(Path(folder)))
        return registry

    def observe_stage(self, stage: str, began: float, ended: float) -> None:
        """Record the duration of a stage, from readings of time.perf_counter()."""
        self.stage_seconds.labels(stage).observe(ended - began)

    def observe_answering_stage(self, answer: Answer) -> None:
        """Record which stage an answer of a release with two stages is from."""
        self.stage_replies.labels(answer.skipped or "ranked").inc()

    def observe_cache(self, outcome: str) -> None:
        """Record the outcome of a cache lookup: hit, miss, error or bypass."""
        self._cache_outcomes[outcome].inc()

    def observe_reply(self, kept: int, considered: int, reason: Reason | GateReason | None, explored: int = 0) -> None:
        """Record a reply with `kept` of the documents considered; `reason` says why there are none."""
        # Of those kept, `explored` are below the threshold, and were returned in order to be judged.
        self._kept.inc(kept)
        self._dropped.inc(considered - kept)
        if explored:
            self.explored.inc(explored)
        if reason is not None:
            self.empty_responses.labels(reason).inc()
        if reason == _UNANSWERABLE:
            self.refused.labels(reason).inc()

    def new_release_registry(self) -> CollectorRegistry:
        """Make a registry for metrics of a new release in service; it replaces that of the previous release."""
        self._release_registry = CollectorRegistry()
        return self._release_registry

    def new_shadow_registry(self) -> CollectorRegistry:
        """Make a registry for metrics of a new shadow release; it replaces that of the previous shadow release."""
        self._shadow_registry = CollectorRegistry()
        return self._shadow_registry

    def set_key_expiry(self, expires: Mapping[str, float]) -> None:
        """Set the Unix times in seconds at which keys expire, by name; other keys have none."""
        for name in self._expiring.difference(expires):
            self.key_expires.labels(name).set(math.nan)  # a series that is shared by workers cannot be removed
        for name, seconds in expires.items():
            self.key_expires.labels(name).set(seconds)
        self._expiring |= expires.keys()

    def observe_reload(self, outcome: ReloadOutcome) -> None:
        """Record the outcome of a reload check."""
        self.reloads.labels(outcome).inc()
        self.reload_failed.set(outcome == "failed")

    def set_release(self, manifest: ReleaseManifest, loaded_at: float) -> None:
        """Describe the release in service, which was loaded at a Unix time in seconds."""
        if self._release_labels is not None:
            self.release_info.labels(*self._release_labels).set(0)
            if SHARED_FOLDER not in os.environ:  # a series that is shared by workers cannot be removed
                self.release_info.remove(*self._release_labels)
        self._release_labels = (
            manifest.release_id,
            manifest.scorer.name,
            manifest.policy.kind,
            manifest.state_in_words,
        )
        self.release_info.labels(*self._release_labels).set(1)
        self.release_threshold.set(math.nan if manifest.policy.tau is None else manifest.policy.tau)
        self.release_rho.set(math.nan if manifest.answer_threshold is None else manifest.answer_threshold[1])
        self.release_psi.set(math.nan if manifest.policy.psi is None else manifest.policy.psi)
        self.release_provisional.set(manifest.state == "provisional")
        self.release_documents_over_certified.set(manifest.documents_over_certified)
        created = creation_time(manifest.release_id)
        self.release_created.set(math.nan if created is None else created.timestamp())
        self.release_loaded.set(loaded_at)
        calibration = manifest.metrics["calibration"]
        for figures, reference in ((self.coe_reference, calibration.coe), (self.roe_reference, calibration.roe)):
            for bound in ("lower", "mean", "upper"):
                figures.labels(bound).set(math.nan if reference is None else getattr(reference, bound))


class _KnownMetrics(Collector):
    """Collects the metrics of a registry, without those that mean nothing for the release in service."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        return _known(self._registry.collect())


def _known(metrics: Iterable[Metric]) -> Iterable[Metric]:
    meaningless = {RELEASE_PSI, OVER_CERTIFIED}
    return (
        metric
        for metric in metrics
        if metric.name not in meaningless or not any(math.isnan(sample.value) for sample in metric.samples)
    )


class AllWorkersCollector(Collector):
    """Collects the metrics that all workers store in one folder."""

    def __init__(self, folder: str, release_registry: CollectorRegistry) -> None:
        """Read the folder of the workers; the registry has this process's metrics of the release in service."""
        self._shared = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        self._release_registry = release_registry

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics, without buckets and labels of releases that are no longer in service."""
        bounds = {sample.labels["le"] for sample in _samples(self._release_registry.collect(), f"{SIMILARITY}_bucket")}
        for metric in _known(self._shared.collect()):  # type: ignore[no-untyped-call]
            if metric.name in {RELEASE_INFO, SHADOW_INFO}:
                metric.samples = [sample for sample in metric.samples if sample.value]
            elif metric.name == SIMILARITY and bounds:
                metric.samples = [sample for sample in metric.samples if sample.labels.get("le", "+Inf") in bounds]
            yield metric


def _samples(metrics: Iterable[Metric], name: str) -> Iterable[Sample]:
    return (sample for metric in metrics for sample in metric.samples if sample.name == name)


class WorkerProcessesCollector(Collector):
    """Collects the metrics of prometheus_client's ProcessCollector, summed over the live workers."""

    def __init__(self, folder: Path) -> None:
        """Set the folder of the workers, whose files have names that end with process ids."""
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Yield one value per metric. Memory that workers share, such as the index, counts once for each worker."""
        by_name: dict[str, list[Metric]] = {}
        for pid in {path.stem.rpartition("_")[2] for path in self._folder.glob("*.db")}:
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():  # empty for a dead process
                by_name.setdefault(metric.name, []).append(metric)
        for name, metrics in by_name.items():
            value = _COMBINE.get(name, sum)([metric.samples[0].value for metric in metrics])
            family = CounterMetricFamily if metrics[0].type == "counter" else GaugeMetricFamily
            yield family(name, metrics[0].documentation, value=value)
