"""The Prometheus metrics of drift, on a registry that goes with the release, as histogram buckets are the release's."""

import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from taugate.drift.observations import Judgements, Observations
from taugate.drift.overlap import LiveOverlap
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.metrics import SIMILARITY, MultiprocessMode


class BulkHistogram(Histogram):
    """A Prometheus histogram that observes many values in one call."""

    def observe_all(self, values: Float32) -> None:
        """Observe each of the values; an array of any shape."""
        bounds = np.array(self._upper_bounds)
        counts = np.bincount(np.searchsorted(bounds, values.ravel(), side="left"), minlength=len(bounds))
        for bucket, count in zip(self._buckets, counts.tolist(), strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(float(values.sum(dtype=np.float64)))

    def clear_all(self) -> None:
        """Set every bucket to 0, whatever its labels."""
        for each in cast("list[Histogram]", list(self._metrics.values())):
            for value in (*each._buckets, each._sum):
                value.set(0)


# Of each of the three distributions at calibration: their tails, where drift begins, and their middle.
_PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
_BOUNDS = ("lower", "upper")
_COMPARED = ("random", "correct")  # with θ: for ROE, and for COE


class DriftGauges:
    """Metrics of the drift of one release."""

    def __init__(self, registry: CollectorRegistry, reference: Reference, theta: float) -> None:
        """registry: for these metrics alone; reference: the similarities at calibration, whose quantiles are buckets.

        theta: θ of the calibration: from the counts above it Prometheus can tell COE and ROE of all processes together.
        """
        self._registry, self._theta = registry, theta
        self._similarity = BulkHistogram(
            SIMILARITY,
            "Similarities of queries with their top-K, with random and with judged documents.",
            ["set"],
            buckets=similarity_buckets(reference),
            registry=registry,
        )
        self._above = Counter(
            "taugate_overlap_above",
            "Similarities above θ of the calibration, with random and with judged documents.",
            ["set"],
            registry=registry,
        )
        self._compared = Counter(
            "taugate_overlap_compared",
            "Similarities that were compared with it.",
            ["set"],
            registry=registry,
        )
        for name in _COMPARED:  # from 0, so that the first of a kind is an increase
            self._compare(name, np.zeros(0, dtype=np.float32))
        self._coe, self._coe_bounds = self._overlap("coe", "COE of documents that were judged relevant")
        expected = "COE of the calibration's correct documents against the live top-K"
        self._expected, self._expected_bounds = self._overlap("coe_expected", expected)
        self._roe, self._roe_bounds = self._overlap("roe", "ROE of random documents")
        self._samples = self._gauge("overlap_samples", "Similarities behind the live gauges.", "livemax", ["set"])
        self._statistic = self._gauge(
            "drift_statistic", "Distance of the live top-K similarities from those at calibration.", names=["test"]
        )
        self._effect = self._gauge("drift_effect", "Largest shift in the window, Cohen's h.", names=["signal"])
        self._evidence = self._gauge(
            "drift_evidence", "Logarithm of the evidence over that of an alarm.", "livemax", ["signal"]
        )
        self._threshold = self._gauge("drift_alarm_threshold", "Natural logarithm of the evidence of an alarm.")
        self._alarm = self._gauge("drift_alarm", "Whether there is an alarm.", "livemax", ["signal"])
        self._block = self._gauge("drift_block_queries", "Distinct queries in a block.", "livemax")
        self._blocks = Counter("taugate_drift_blocks", "Blocks of queries that were completed.", registry=registry)
        self._shared = self._gauge(
            "drift_shared", "Whether evidence is shared with other processes at the moment.", "livemin"
        )
        self._baseline = self._gauge("drift_baseline", "Whether a baseline of ordinary traffic is in force.", "livemin")
        self._refused = self._gauge(
            "drift_baseline_refused", "Whether the baseline that was named does not fit.", "livemax"
        )
        self._lost = Counter(
            "taugate_drift_lost", "Queries that were answered faster than they could be watched.", registry=registry
        )
        self._accuracy = self._gauge("canary_accuracy", "Accuracy of the golden queries, asked now.", "livemin")
        self._recorded = self._gauge("canary_accuracy_reference", "The same at calibration.")
        self._difference = self._gauge(
            "canary_difference", "Largest distance of a golden query's similarity from its record.", "livemax"
        )
        self._asked = self._gauge("canary_timestamp_seconds", "When the golden queries were asked last.", "livemin")
        for gauge in (self._coe, self._expected, self._roe):
            gauge.set(math.nan)

    def close(self) -> None:
        """Set the counts to 0: where several processes answer, those of the next release would be added to them."""
        self._similarity.clear_all()
        for name in _COMPARED:
            self._above.labels(name).reset()
            self._compared.labels(name).reset()

    def observe_queries(self, seen: Observations) -> None:
        """Count queries' similarities."""
        self._similarity.labels("topk").observe_all(seen.top)
        self._similarity.labels("random").observe_all(seen.random)
        self._compare("random", seen.random)

    def observe_judgements(self, seen: Judgements) -> None:
        """Count similarities of judged documents."""
        self._similarity.labels("correct").observe_all(seen.correct)
        self._compare("correct", seen.correct)

    def _compare(self, name: str, similarities: Float32) -> None:
        self._above.labels(name).inc(int((similarities > self._theta).sum()))
        self._compared.labels(name).inc(similarities.size)

    def count_lost(self, queries: int) -> None:
        """Count queries that were not analyzed."""
        self._lost.inc(queries)

    def set_alarm(self, signal: str, *, on: bool, evidence: float) -> None:
        """Set the state of one alarm.

        Args:
            evidence: 0 is none, 1 is enough for an alarm.
        """
        self._alarm.labels(signal).set(on)
        self._evidence.labels(signal).set(evidence)

    def set_threshold(self, log: float) -> None:
        """Set the natural logarithm of the evidence that an alarm takes."""
        self._threshold.set(log)

    def observe_blocks(self, blocks: int, size: int, *, shared: bool) -> None:
        """Count blocks that were completed.

        Args:
            size: Queries in the next one.
            shared: Whether others know of them.
        """
        self._blocks.inc(blocks)
        self._block.set(size)
        self._shared.set(shared)

    def set_baseline(self, *, in_force: bool, refused: bool) -> None:
        """Set whether a baseline is in force, and whether one was named and does not fit."""
        self._baseline.set(in_force)
        self._refused.set(refused)

    def set_canary(self, *, accuracy: float, recorded: float, difference: float, alike: bool) -> None:
        """Set how the golden queries were answered just now.

        Args:
            accuracy: Now and at calibration, 0…1.
            recorded: Now and at calibration, 0…1.
            difference: As CanaryResult has them.
            alike: As CanaryResult has them.
        """
        self._accuracy.set(accuracy)
        self._recorded.set(recorded)
        self._difference.set(difference)
        self._asked.set_to_current_time()
        self.set_alarm("canary", on=not alike, evidence=float(not alike))

    def set_window(
        self,
        overlap: LiveOverlap,
        samples: Mapping[str, int],
        statistics: Mapping[str, float],
        effects: Mapping[str, float],
    ) -> None:
        """Set what the latest queries say together.

        Args:
            overlap: COE and ROE.
            samples: How many similarities, by set.
            statistics: Distances, by test.
            effects: Cohen's h, by signal.
        """
        _show(overlap.coe, self._coe, self._coe_bounds)
        _show(overlap.expected_coe, self._expected, self._expected_bounds)
        _show(overlap.roe, self._roe, self._roe_bounds)
        for gauge, values in ((self._samples, samples), (self._statistic, statistics), (self._effect, effects)):
            for name, value in values.items():
                gauge.labels(name).set(value)

    def _overlap(self, name: str, meaning: str) -> tuple[Gauge, Gauge]:
        return (
            self._gauge(name, f"{meaning}."),
            self._gauge(f"{name}_interval", f"{meaning}: 95 % interval.", names=["bound"]),
        )

    def _gauge(
        self, name: str, meaning: str, combined: MultiprocessMode = "livemostrecent", names: Sequence[str] = ()
    ) -> Gauge:
        return Gauge(f"taugate_{name}", meaning, names, registry=self._registry, multiprocess_mode=combined)


def _show(interval: Interval | None, gauge: Gauge, bounds: Gauge) -> None:
    gauge.set(math.nan if interval is None else interval.mean)
    for bound in _BOUNDS:
        bounds.labels(bound).set(math.nan if interval is None else getattr(interval, bound))


def similarity_buckets(reference: Reference) -> list[float]:
    """Return the upper bounds of the histogram of similarities: quantiles of those at calibration."""
    samples: tuple[Float32, ...] = (reference.top.ravel(), reference.correct, reference.random)
    quantiles = np.concatenate([np.percentile(sample, _PERCENTILES) for sample in samples])
    return [float(bound) for bound in np.unique(quantiles.round(4))]  # as many digits as a person reads
