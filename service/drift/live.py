"""The latest queries and judgements of one release in one process, and what Prometheus is told of them."""

from collections.abc import Callable, Mapping

import numpy as np

from taugate.drift.effect import effect
from taugate.drift.live import live_overlap
from taugate.drift.monitor import Monitor
from taugate.drift.observations import Judgements, Observations
from taugate.drift.statistics import kolmogorov_smirnov, population_stability, wasserstein
from taugate.drift.window import Window
from taugate.retrieval.release.reader import Release
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.drift.gauges import DriftGauges
from taugate.service.settings import Settings

_MOST_COMPARED = 2000  # queries of the window, chosen at random: a share of .93 of them is within ±.011 (95 %)
_TESTS: Mapping[str, Callable[[Float32, Float32], float]] = {
    "ks": kolmogorov_smirnov,
    "psi": population_stability,
    "wasserstein": wasserstein,
}


class Live:
    """Of one thread at a time. monitor: whose signals are shown."""

    def __init__(self, release: Release, settings: Settings, gauges: DriftGauges, monitor: Monitor) -> None:
        self._reference, self._drawn = release.reference, release.manifest.bootstrap
        self._gauges, self._monitor = gauges, monitor
        most, seconds = settings.drift_window_queries, settings.drift_window_seconds
        self._queries = Window[Observations](most, seconds)
        self._judged = Window[Judgements](most, seconds)
        self._rng = np.random.default_rng()

    def saw(self, seen: Observations) -> None:
        """Queries, as they were answered."""
        self._gauges.saw(seen)
        self._queries.append(seen)

    def judged(self, seen: Judgements) -> None:
        """Documents that were judged relevant."""
        self._gauges.judged(seen)
        self._judged.append(seen)

    def show(self, now: float) -> None:
        """Tell Prometheus what the window says at a Unix time."""
        queries, judged = self._queries.at(now), self._judged.at(now)
        if not queries:
            return
        reference, seen = self._reference, Observations.joined(queries)
        correct = Judgements.joined(judged) if judged else Judgements.none()
        compared = seen.top[self._rng.permutation(len(seen))[:_MOST_COMPARED]].ravel()
        self._gauges.window(
            live_overlap(seen, correct, reference, self._drawn),
            {"topk": seen.top.size, "random": seen.random.size, "correct": len(correct)},
            {name: test(compared, reference.top.ravel()) for name, test in _TESTS.items()},
            self._effects(seen, correct),
        )

    def _effects(self, seen: Observations, correct: Judgements) -> dict[str, float]:
        effects = {
            signal.name: _largest(signal.variables(seen), signal.means) for signal in self._monitor.queries.signals
        }
        if len(correct):
            for judged in self._monitor.feedback.signals:
                effects[judged.name] = _largest(judged.variables(correct.correct), judged.means)
        return effects


def _largest(values: np.ndarray, means: np.ndarray) -> float:
    return float(np.abs(effect(values.mean(axis=0), means)).max())
