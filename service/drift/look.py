"""One look at what requests left behind: alarms, the window, canaries, the log. Of one thread."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from prometheus_client import CollectorRegistry

from taugate.drift.live import kolmogorov_smirnov, live_overlap, population_stability, wasserstein
from taugate.drift.monitor import Monitor, theta_of
from taugate.drift.observations import Judgements, Observations, Window, effect
from taugate.retrieval.release.reader import Release
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.drift.canary import Canary
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.gauges import DriftGauges
from taugate.service.drift.query_log import Judged, QueryLog, Seen, comparable, joined, judgements, observations
from taugate.service.drift.verdict import Verdict
from taugate.service.pipeline.engine import RANDOM_DOCUMENTS, Engine
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
        most, seconds = settings.drift.window_queries, settings.drift.window_seconds
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


_log = logging.getLogger("taugate.drift")
_SHOW_SECONDS = 15.0  # a usual scrape interval of Prometheus
# Between two times that evidence is weighed: many queries at once take hardly longer than few, and each of NumPy's
# steps has the interpreter change hands with whoever answers requests.
_WEIGH_SECONDS = 5.0


class Look:
    """At the traffic of one release in one process."""

    def __init__(self, engine: Engine, settings: Settings, registry: CollectorRegistry, fleet: Fleet | None) -> None:
        release = engine.release
        theta = theta_of(release.reference, release.manifest.bootstrap.overlap_percentile)
        self._gauges = DriftGauges(registry, release.reference, theta)
        self.verdict = Verdict(release, settings, self._gauges, fleet)
        self._live = Live(release, settings, self._gauges, self.verdict.monitor)
        self._canary = Canary(release, engine.single)
        self._fleet = fleet
        self._k = release.reference.top.shape[1]
        path, release_id = settings.drift.query_log, release.manifest.release_id
        self._query_log = None if path is None else QueryLog(path, release_id, texts=settings.drift.query_log_texts)
        self._canary_seconds = settings.drift.canary_seconds
        self._shown_at = self._weighed_at = time.monotonic()
        self._asked_at = -math.inf
        self._queries: list[Observations] = []
        self._to_log: list[Seen] = []
        self._judged: list[Judged] = []

    def look(self, seen: Sequence[Seen], judged: Sequence[Judged]) -> None:
        """At what came since the last look, which may be nothing."""
        if self._fleet is not None and seen:
            self._fleet.remember(seen[-1].at, {each.query_id: each.shown for each in seen})
        known = comparable(seen, self._k, RANDOM_DOCUMENTS)
        if known:  # as numbers, which take a tenth of the memory
            self._queries.append(observations(known, self._k, RANDOM_DOCUMENTS))
        if self._query_log is not None:
            self._to_log += known
        self._judged += judged
        now = time.monotonic()
        if now >= self._weighed_at + _WEIGH_SECONDS:
            self._weighed_at = now
            self._weigh()
        if now >= self._shown_at + _SHOW_SECONDS:
            self._shown_at = now
            self._live.show(time.time())
        if now >= self._asked_at + self._canary_seconds:
            self._asked_at = now
            self._ask()

    def lost(self, queries: int) -> None:
        """So many queries were answered faster than they could be looked at."""
        self._gauges.lost(queries)

    def close(self, *, forget: bool) -> None:
        """Weigh what is left, and take the metrics back; forget: the release has left, and its alarms with it."""
        self._weigh()
        if forget:
            self.verdict.forget()
        self._gauges.close()

    def _weigh(self) -> None:
        queries = joined(self._queries) if self._queries else observations([], self._k, RANDOM_DOCUMENTS)
        seen, judged, told = self._to_log, self._judged, judgements(self._judged)
        self._queries, self._to_log, self._judged = [], [], []
        if len(queries):
            self._live.saw(queries)
        if judged:
            self._live.judged(told)
        self.verdict.weigh(queries, told)
        if self._query_log is not None:
            self._query_log.write(seen, queries, judged)

    def _ask(self) -> None:
        result = self._canary.ask()
        self._gauges.canary(result, self._canary.accuracy_at_calibration)
        self.verdict.canary(alike=result.alike)
        if not result.alike:
            fields = {"difference": result.difference, "accuracy": result.accuracy}
            _log.error("golden queries are not answered as they were at calibration", extra={"fields": fields})
