"""Windows and alarms of one release in one process, and what Prometheus is told of them."""

from collections.abc import Callable, Mapping

import numpy as np

from retrieval.drift.alarm import Change
from retrieval.drift.effect import effect
from retrieval.drift.live import live_overlap
from retrieval.drift.monitor import Monitor, theta_of
from retrieval.drift.observations import Judgements, Observations
from retrieval.drift.sample import MOST, Sample, merged
from retrieval.drift.statistics import kolmogorov_smirnov, population_stability, wasserstein
from retrieval.drift.window import Window
from retrieval.release.reader import Release
from retrieval.similarity import Float32
from service.drift.gauges import DriftGauges
from service.settings import Settings

_TESTS: Mapping[str, Callable[[Float32, Float32], float]] = {
    "ks": kolmogorov_smirnov,
    "psi": population_stability,
    "wasserstein": wasserstein,
}


class Live:
    """Of one thread at a time."""

    def __init__(self, release: Release, settings: Settings, gauges: DriftGauges) -> None:
        self._reference, self._drawn = release.reference, release.manifest.bootstrap
        self._gauges = gauges
        most, seconds = settings.drift_window_queries, settings.drift_window_seconds
        self._queries = Window[Observations](most, seconds)
        self._judged = Window[Judgements](most, seconds)
        theta = theta_of(self._reference, self._drawn.overlap_percentile)
        self.monitor = Monitor(self._reference, theta, settings.drift_smallest_effect, settings.drift_seldom)
        self._rng = np.random.default_rng()  # of what is told to others: no two replicas choose alike
        self._tell()

    def saw(self, seen: Observations) -> list[Change]:
        """Queries, as they were answered."""
        self._gauges.saw(seen)
        self._queries.append(seen)
        return self._tell(self.monitor.update(seen))

    def judged(self, seen: Judgements) -> list[Change]:
        """Documents that were judged relevant."""
        self._gauges.judged(seen)
        self._judged.append(seen)
        return self._tell(self.monitor.feedback(seen.correct))

    def samples(self, now: float) -> tuple[Sample[Observations] | None, Sample[Judgements] | None]:
        """Of both windows, None where one is empty."""
        queries, judged = self._queries.at(now), self._judged.at(now)
        return (
            Sample.of(Observations.joined(queries), self._rng) if queries else None,
            Sample.of(Judgements.joined(judged), self._rng) if judged else None,
        )

    def show(self, queries: list[Sample[Observations]], judged: list[Sample[Judgements]]) -> None:
        """Tell Prometheus what these windows, of this and of other replicas, say together."""
        if not queries:
            return
        reference = self._reference
        seen = merged(queries)
        correct = merged(judged) if judged else Judgements(np.zeros(0), np.zeros(0, dtype=np.float32))
        self._gauges.window(
            live_overlap(seen, correct, reference, self._drawn),
            {"topk": seen.top.size, "random": seen.random.size, "correct": len(correct)},
            len(queries),
            {name: test(seen.top[:MOST].ravel(), reference.top.ravel()) for name, test in _TESTS.items()},
            self._effects(seen, correct),
        )

    def _effects(self, seen: Observations, correct: Judgements) -> dict[str, float]:
        signals = {alarm.signal.name: alarm.signal for alarm in self.monitor.of_queries}
        effects = {name: _largest(signal.variables(seen), signal.means) for name, signal in signals.items()}
        if len(correct):
            signal = self.monitor.of_feedback.signal
            effects[signal.name] = _largest(signal.variables(correct.correct), signal.means)
        return effects

    def _tell(self, changes: list[Change] | None = None) -> list[Change]:
        for alarm in self.monitor.alarms:
            self._gauges.alarm(alarm.signal.name, on=alarm.on, evidence=alarm.share_of_threshold)
        return changes or []


def _largest(values: np.ndarray, means: np.ndarray) -> float:
    return float(np.abs(effect(values.mean(axis=0), means)).max())
