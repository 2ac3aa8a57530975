"""The drift alarms of the deployment, as this process knows them, and the Prometheus metrics of drift."""

import logging
import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import orjson
from prometheus_client import CollectorRegistry, Gauge, Histogram

from taugate.drift.monitor import Baseline, Monitor, load_baseline
from taugate.drift.observations import JudgedReplies, Judgements, Observations
from taugate.drift.sequences import ShareBounds
from taugate.drift.signals import LiveOverlap, Rules, theta_of
from taugate.errors import InputError
from taugate.policy.arrays import Float32
from taugate.release.evidence import Interval
from taugate.release.layout import baseline_path
from taugate.release.queries import Reference
from taugate.service.drift.query_log import WatchedRelease
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.metrics import SIMILARITY, MetricGroup, counter, gauge
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads redis-py, which a service without Redis does not need
    from taugate.service.replicas import Fleet

_log = logging.getLogger(__name__)
_MAX_UNSHARED = 20_000  # queries kept while Redis is away, some 2 MB: enough to show any drift that can be detected


class BulkHistogram(Histogram):
    """A Prometheus histogram that observes many values in one call."""

    def observe_all(self, values: Float32) -> None:
        """Observe an array of values of any shape."""
        bounds = np.array(self._upper_bounds)
        counts = np.bincount(np.searchsorted(bounds, values.ravel(), side="left"), minlength=len(bounds))
        for bucket, count in zip(self._buckets, counts.tolist(), strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(float(values.sum(dtype=np.float64)))

    def clear_all(self) -> None:
        """Set every bucket to 0, for all label values."""
        for histogram in cast("list[Histogram]", list(self._metrics.values())):
            for value in (*histogram._buckets, histogram._sum):
                value.set(0)


# Percentiles of the three distributions at calibration: the tails, where drift begins, and the middle.
_PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
_BOUNDS = ("lower", "upper")
_COMPARED = ("random", "correct")  # with θ: for ROE, and for COE
_OUTCOMES = ("relevant", "none_relevant")


class DriftGauges(MetricGroup):
    """Metrics of the drift of one release."""

    _above = counter(
        "taugate_overlap_above",
        "Similarities with random and relevant documents above θ of the calibration.",
        "set",
        values=_COMPARED,
    )
    _compared = counter(
        "taugate_overlap_compared", "Similarities compared with θ of the calibration.", "set", values=_COMPARED
    )
    _replies = counter(
        "taugate_judged_replies", "Replies judged to hold a relevant result, or none.", "outcome", values=_OUTCOMES
    )
    _coe = gauge("taugate_coe", "COE of documents that were judged relevant.")
    _coe_bounds = gauge("taugate_coe_interval", "COE of documents that were judged relevant: 95 % interval.", "bound")
    _expected = gauge("taugate_coe_expected", "COE of the calibration's correct documents against the live top-K.")
    _expected_bounds = gauge(
        "taugate_coe_expected_interval",
        "COE of the calibration's correct documents against the live top-K: 95 % interval.",
        "bound",
    )
    _roe = gauge("taugate_roe", "ROE of random documents.")
    _roe_bounds = gauge("taugate_roe_interval", "ROE of random documents: 95 % interval.", "bound")
    _samples = gauge("taugate_overlap_samples", "Similarities in the live window, by set.", "set", mode="livemax")
    _statistic = gauge(
        "taugate_drift_statistic", "Distance of the live top-K similarities from those at calibration.", "test"
    )
    _effect = gauge("taugate_drift_effect", "Largest shift in the live window, as Cohen's h, by signal.", "signal")
    _share = gauge(
        "taugate_drift_share",
        "Mean share of the live window, by signal; of topk_similarity, the mean best similarity.",
        "signal",
    )
    _share_reference = gauge("taugate_drift_share_reference", "The same at calibration, by signal.", "signal")
    _evidence = gauge(
        "taugate_drift_evidence",
        "Log evidence of drift over the alarm threshold; 1 raises the alarm.",
        "signal",
        mode="livemax",
    )
    threshold = gauge("taugate_drift_alarm_threshold", "Natural logarithm of the evidence that raises an alarm.")
    _alarm = gauge("taugate_drift_alarm", "Drift alarm, by signal: 1 on, 0 off.", "signal", mode="livemax")
    block_queries = gauge("taugate_drift_block_queries", "Distinct queries in a block.", mode="livemax")
    blocks = counter("taugate_drift_blocks", "Completed blocks of queries.")
    shared = gauge(
        "taugate_drift_shared", "Drift evidence is shared with other processes: 1 yes, 0 no.", mode="livemin"
    )
    baseline = gauge("taugate_drift_baseline", "A baseline of ordinary traffic is in use: 1 yes, 0 no.", mode="livemin")
    baseline_refused = gauge(
        "taugate_drift_baseline_refused",
        "The configured baseline does not fit the release: 1 yes, 0 no.",
        mode="livemax",
    )
    lost = counter("taugate_drift_lost", "Answered queries that drift detection had no time to analyze.")
    canary_accuracy = gauge(
        "taugate_canary_accuracy", "Accuracy of the golden queries at the last run.", mode="livemin"
    )
    canary_accuracy_reference = gauge(
        "taugate_canary_accuracy_reference", "Accuracy of the golden queries at calibration."
    )
    canary_difference = gauge(
        "taugate_canary_difference",
        "Largest difference of a golden query's similarity from its record.",
        mode="livemax",
    )
    canary_timestamp = gauge(
        "taugate_canary_timestamp_seconds", "Unix time of the last run of the golden queries.", mode="livemin"
    )

    def __init__(self, registry: CollectorRegistry, reference: Reference, theta: float) -> None:
        """Register the metrics; quantiles of the similarities at calibration are the histogram's buckets."""
        # From the counts above `theta`, θ of the calibration, Prometheus computes COE and ROE over all
        # processes.
        self._similarity = BulkHistogram(
            SIMILARITY,
            "Similarities of queries with their top-K, random and relevant documents.",
            ["set"],
            buckets=similarity_buckets(reference),
            registry=registry,
        )
        super().__init__(registry)
        self._theta = theta
        for overlap in (self._coe, self._expected, self._roe):
            overlap.set(math.nan)

    def close(self) -> None:
        """Set the counts to 0, so that several processes do not add them to those of the next release."""
        self._similarity.clear_all()
        for name in _COMPARED:
            self._above.labels(name).reset()
            self._compared.labels(name).reset()
        for outcome in _OUTCOMES:
            self._replies.labels(outcome).reset()

    def observe_queries(self, queries: Observations) -> None:
        """Count the similarities of queries."""
        self._similarity.labels("topk").observe_all(queries.top)
        self._similarity.labels("random").observe_all(queries.random)
        self._compare("random", queries.random)

    def observe_judgements(self, judged: Judgements, replies: JudgedReplies) -> None:
        """Count the similarities of judged documents, and judged replies."""
        self._similarity.labels("correct").observe_all(judged.correct)
        self._compare("correct", judged.correct)
        for outcome, relevant in zip(_OUTCOMES, (1, 0), strict=True):
            self._replies.labels(outcome).inc(int((replies.relevant == relevant).sum()))

    def _compare(self, name: str, similarities: Float32) -> None:
        self._above.labels(name).inc(int((similarities > self._theta).sum()))
        self._compared.labels(name).inc(similarities.size)

    def set_alarm(self, signal: str, *, on: bool, evidence: float) -> None:
        """Set the state of one alarm; evidence of 0 is none, 1 raises the alarm."""
        self._alarm.labels(signal).set(on)
        self._evidence.labels(signal).set(evidence)

    def set_references(self, shares: Mapping[str, float]) -> None:
        """Set the means at calibration of the signals with one variable, and the mean best similarity."""
        for signal, share in shares.items():
            self._share_reference.labels(signal).set(share)

    def set_window(
        self,
        overlap: LiveOverlap,
        samples: Mapping[str, int],
        statistics: Mapping[str, float],
        effects: Mapping[str, float],
        shares: Mapping[str, float],
    ) -> None:
        """Set the figures of the live window."""
        _show(overlap.coe, self._coe, self._coe_bounds)
        _show(overlap.expected_coe, self._expected, self._expected_bounds)
        _show(overlap.roe, self._roe, self._roe_bounds)
        named = ((self._samples, samples), (self._statistic, statistics), (self._effect, effects))
        for figures, values in (*named, (self._share, shares)):
            for name, value in values.items():
                figures.labels(name).set(value)


def _show(interval: Interval | None, mean: Gauge, bounds: Gauge) -> None:
    mean.set(math.nan if interval is None else interval.mean)
    for bound in _BOUNDS:
        bounds.labels(bound).set(math.nan if interval is None else getattr(interval, bound))


def similarity_buckets(reference: Reference) -> list[float]:
    """Return the upper bounds of the similarity histogram: quantiles of the similarities at calibration."""
    samples: tuple[Float32, ...] = (reference.top.ravel(), reference.correct, reference.random)
    quantiles = np.concatenate([np.percentile(sample, _PERCENTILES) for sample in samples if sample.size])
    return [float(bound) for bound in np.unique(quantiles.round(4))]  # digits that a person can read


def drift_field(signals: Sequence[str], loss: ShareBounds | None = None) -> bytes:
    """Return the field `drift` of a reply, as JSON, for the signals whose alarms are on."""
    bounds = {} if loss is None else {"loss": {"lower": loss.lower, "upper": loss.upper}}
    return orjson.dumps({"alarm": bool(signals), "signals": signals, **bounds})


NO_DRIFT = drift_field([])


class DriftAlarms:
    """The alarms of one release. Belongs to one thread at a time; any may read `report`, a field of replies."""

    def __init__(
        self, release: WatchedRelease, settings: Settings, gauges: DriftGauges, shared: "Fleet | WorkerStore | None"
    ) -> None:
        """Start without evidence, or with that of the processes that share their state; None for a single process."""
        self._gauges, self._shared = gauges, shared
        self.monitor = _monitor(release, settings, gauges)
        self._kind = f"state:{self.monitor.fingerprint}"
        self._unshared: deque[tuple[Observations, JudgedReplies]] = deque()
        self._canary_failed = False
        self._loss: ShareBounds | None = None
        self.report = NO_DRIFT
        gauges.threshold.set(self.monitor.threshold)
        for alarm in self.monitor.alarms:
            gauges.set_alarm(alarm.signal, on=False, evidence=0.0)

    def update(self, queries: Observations, judged: JudgedReplies) -> None:
        """Add the traffic since the last call. Without any, take over what other replicas have shared."""
        before = {alarm.signal for alarm in self.monitor.alarms if alarm.on}
        blocks, shared = self._update(queries, judged)
        self._gauges.blocks.inc(blocks)
        self._gauges.block_queries.set(self.monitor.queries.blocks.size)
        self._gauges.shared.set(shared)
        for alarm in self.monitor.alarms:
            self._gauges.set_alarm(alarm.signal, on=alarm.on, evidence=alarm.share_of_threshold)
            if alarm.on != (alarm.signal in before):
                message = "drift alarm raised" if alarm.on else "drift alarm cleared"
                _log.warning(message, extra={"fields": {"signal": alarm.signal}})
        self._update_report()

    def canary(self, *, alike: bool) -> None:
        """Set the alarm of the canaries: on unless the golden queries gave the same results as at calibration."""
        self._canary_failed = not alike
        self._update_report()

    def set_loss(self, loss: ShareBounds) -> None:
        """Set the bounds of the live loss that replies show."""
        if loss != self._loss:
            self._loss = loss
            self._update_report()

    def forget(self) -> None:
        """Delete the shared state of a release that has left, so that its alarms start afresh if it returns."""
        if self._shared is not None:
            self._shared.drop(self._kind)

    def _update(self, queries: Observations, judged: JudgedReplies) -> tuple[int, bool]:
        """Add traffic to the shared state; returns the completed blocks and whether all other processes see them."""
        if self._shared is None:
            return self._add([(queries, judged)]), False
        monitor, blocks = self.monitor, 0
        previous = monitor.pack()  # includes what was read from the shared state

        def work(stored: bytes | None) -> bytes | None:
            nonlocal blocks
            try:
                monitor.restore(previous if stored is None else stored)
            except ValueError:  # other clients can write to Redis
                monitor.restore(previous)
                stored = None
            new = [(queries, judged)] if stored is None else [*self._unshared, (queries, judged)]
            if stored is not None and not any(len(part) for parts in new for part in parts):
                return None
            blocks = self._add(new)
            return monitor.pack()

        if self._shared.change(self._kind, work):
            self._unshared.clear()
            return blocks, True
        monitor.restore(previous)
        self._keep(queries, judged)
        return self._add([(queries, judged)]), False

    def _add(self, parts: Sequence[tuple[Observations, JudgedReplies]]) -> int:
        """Add parts of the traffic; returns how many blocks they complete."""
        blocks = 0
        for queries, judged in parts:
            blocks += sum(result.fifth.block is not None for result in self.monitor.process(queries))
            self.monitor.judge(judged)
        return blocks

    def _keep(self, queries: Observations, judged: JudgedReplies) -> None:
        """Keep the latest traffic until the shared state can be reached again."""
        self._unshared.append((queries, judged))
        while sum(len(part) for part, _ in self._unshared) > _MAX_UNSHARED and len(self._unshared) > 1:
            self._unshared.popleft()

    def _update_report(self) -> None:
        on = [alarm.signal for alarm in self.monitor.alarms if alarm.on]
        self.report = drift_field([*on, "canary"] if self._canary_failed else on, self._loss)


def _monitor(release: WatchedRelease, settings: Settings, gauges: DriftGauges) -> Monitor:
    """Build the monitor, with the baseline if one is configured and fits; log and count one that does not fit."""
    reference, name = release.reference, release.manifest.release_id
    theta = theta_of(reference, release.manifest.bootstrap.overlap_percentile)
    rules = Rules(settings.drift.smallest_effect, settings.drift.average_run_length, settings.drift.block)
    calibrated = Monitor(reference, theta, rules)
    baseline, refused = None, False
    try:
        baseline = _baseline(settings, name, calibrated)
    except InputError as error:
        refused = True
        fields = {"reason": str(error), "release": name}
        _log.warning("drift baseline refused; comparing with the calibration", extra={"fields": fields})
    gauges.baseline.set(baseline is not None)
    gauges.baseline_refused.set(refused)
    return calibrated if baseline is None else Monitor(reference, theta, rules, baseline.bounds)


def _baseline(settings: Settings, release: str, monitor: Monitor) -> Baseline | None:
    """Load the file at TAUGATE_DRIFT_BASELINE; from a folder, the file of this release, or None if there is none."""
    path = settings.drift.baseline
    if path is not None and os.path.isdir(path):  # noqa: PTH112 (False, without an error, for an impossible path)
        path = baseline_path(path, release)
        if not os.path.lexists(path):
            _log.info("no drift baseline for this release", extra={"fields": {"path": str(path)}})
            return None
    return None if path is None else load_baseline(path, release, monitor)
