"""Analyzes the traffic of one release, interval by interval: drift alarms, the live window, canaries, the query log."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from prometheus_client import CollectorRegistry

from taugate.drift.distances import kolmogorov_smirnov, population_stability, wasserstein
from taugate.drift.monitor import Monitor
from taugate.drift.observations import Judgements, Observations
from taugate.drift.overlap import LiveOverlap, live_overlap
from taugate.drift.signals import cohens_h, theta_of
from taugate.drift.window import SlidingWindow
from taugate.errors import EngineUnavailable
from taugate.retrieval.release.reader import Release
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.drift.alarms import DriftAlarms
from taugate.service.drift.canary import Canary
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.gauges import DriftGauges
from taugate.service.drift.old_texts import forget_old_texts
from taugate.service.drift.query_log import (
    JudgedResult,
    QueryLog,
    ServedReply,
    comparable,
    join,
    judgements,
    observations,
)
from taugate.service.pipeline.search import RANDOM_DOCUMENTS, SearchPipeline
from taugate.service.settings import Settings

_log = logging.getLogger("taugate.drift")
_MAX_COMPARED = 2000  # queries of the window, chosen at random: a share of .93 of them is within ±.011 (95 %)
_TESTS: Mapping[str, Callable[[Float32, Float32], float]] = {
    "ks": kolmogorov_smirnov,
    "psi": population_stability,
    "wasserstein": wasserstein,
}
_SHOW_SECONDS = 15.0  # a usual scrape interval of Prometheus
# Between two times that the alarms are updated: many queries at once take hardly longer than few, and each of NumPy's
# steps has the interpreter change hands with whoever answers requests.
_UPDATE_SECONDS = 5.0
_FORGET_SECONDS = 600.0  # between two looks whether old texts are to go: of all workers, one does so in an hour


class LiveWindow:
    """The latest queries and judgements, and what they say together. Belongs to one thread at a time.

    overlap: live COE and ROE, which any thread may read.
    """

    def __init__(self, release: Release, settings: Settings, gauges: DriftGauges, monitor: Monitor) -> None:
        """release: whose reference they are compared with; settings: the size of the window; gauges: show it.

        monitor: whose signals' effects are shown.
        """
        self._reference, self._drawn = release.reference, release.manifest.bootstrap
        self._gauges, self._monitor = gauges, monitor
        most, seconds = settings.drift.window_queries, settings.drift.window_seconds
        self._queries = SlidingWindow[Observations](most, seconds)
        self._judged = SlidingWindow[Judgements](most, seconds)
        self._rng = np.random.default_rng()
        self.overlap = LiveOverlap(None, None, None)

    def add_queries(self, seen: Observations) -> None:
        """Add queries, as they were answered."""
        self._gauges.observe_queries(seen)
        self._queries.append(seen)

    def add_judgements(self, seen: Judgements) -> None:
        """Add documents that were judged relevant."""
        self._gauges.observe_judgements(seen)
        self._judged.append(seen)

    def show(self, now: float) -> None:
        """Set the gauges and `overlap` to what the window says at a Unix time."""
        queries, judged = self._queries.at(now), self._judged.at(now)
        if not queries:
            self.overlap = LiveOverlap(None, None, None)
            return
        reference, seen = self._reference, Observations.joined(queries)
        correct = Judgements.joined(judged) if judged else Judgements.none()
        compared = seen.top[self._rng.permutation(len(seen))[:_MAX_COMPARED]].ravel()
        self.overlap = live_overlap(seen, correct, reference, self._drawn)
        self._gauges.set_window(
            self.overlap,
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
    return float(np.abs(cohens_h(values.mean(axis=0), means)).max())


class TrafficAnalysis:
    """The traffic of one release in one process. Belongs to one thread at a time.

    alarms: the drift alarms; their `report` may be read by any thread.
    """

    def __init__(
        self, pipeline: SearchPipeline, settings: Settings, registry: CollectorRegistry, fleet: Fleet | None
    ) -> None:
        """pipeline: of the release; settings: of the service; registry: for the metrics; fleet: the other replicas."""
        release = pipeline.release
        theta = theta_of(release.reference, release.manifest.bootstrap.overlap_percentile)
        self._gauges = DriftGauges(registry, release.reference, theta)
        self.alarms = DriftAlarms(release, settings, self._gauges, fleet)
        self._live = LiveWindow(release, settings, self._gauges, self.alarms.monitor)
        self._canary = Canary(release, pipeline.single_threaded)
        self._fleet = fleet
        self._k = release.reference.top.shape[1]
        path = settings.drift.query_log
        self._query_log = None if path is None else QueryLog(path, release, texts=settings.drift.query_log_texts)
        self._log_path, self._log_days = path, settings.drift.query_log_days
        self._texts_forgotten_at = -math.inf
        self._canary_seconds = settings.drift.canary_seconds
        self._window_set_at = self._alarms_updated_at = time.monotonic()
        self._asked_at = -math.inf
        self._queries: list[Observations] = []
        self._to_log: list[ServedReply] = []
        self._judged: list[JudgedResult] = []

    def analyze(self, served: Sequence[ServedReply], judged: Sequence[JudgedResult]) -> None:
        """Take what came since the last call, which may be nothing, and do what is due."""
        if self._fleet is not None and served:
            self._fleet.remember(served[-1].at, {each.query_id: each.shown for each in served})
        known = comparable(served, self._k, RANDOM_DOCUMENTS)
        if known:  # as numbers, which take a tenth of the memory
            self._queries.append(observations(known, self._k, RANDOM_DOCUMENTS))
        if self._query_log is not None:
            self._to_log += served
        self._judged += judged
        now = time.monotonic()
        if now >= self._alarms_updated_at + _UPDATE_SECONDS:
            self._alarms_updated_at = now
            self._update_alarms()
        if now >= self._window_set_at + _SHOW_SECONDS:
            self._window_set_at = now
            self._live.show(time.time())
        if now >= self._texts_forgotten_at + _FORGET_SECONDS:
            self._texts_forgotten_at = now
            self._forget_texts()
        if now >= self._asked_at + self._canary_seconds:
            self._asked_at = now
            self._ask_canaries()

    @property
    def overlap(self) -> LiveOverlap:
        """Live COE and ROE, as the gauges show them; any thread may read it."""
        return self._live.overlap

    def count_lost(self, queries: int) -> None:
        """Count queries that were answered faster than they could be analyzed."""
        self._gauges.count_lost(queries)

    def close(self, *, forget: bool) -> None:
        """Update the alarms with what is left, and take the metrics back.

        Args:
            forget: The release has left, and its alarms with it.
        """
        self._update_alarms()
        if forget:
            self.alarms.forget()
        self._gauges.close()

    def _update_alarms(self) -> None:
        queries = join(self._queries) if self._queries else observations([], self._k, RANDOM_DOCUMENTS)
        served, judged, columns = self._to_log, self._judged, judgements(self._judged)
        self._queries, self._to_log, self._judged = [], [], []
        if len(queries):
            self._live.add_queries(queries)
        if len(columns):
            self._live.add_judgements(columns)
        self.alarms.update(queries, columns)
        if self._query_log is not None:
            self._query_log.write(served, judged)

    def _forget_texts(self) -> None:
        if self._log_path is None or self._log_days is None:
            return
        try:
            changed = forget_old_texts(self._log_path, self._log_days, time.time())
        except OSError as error:
            _log.error("old texts stay in the query log", extra={"fields": {"reason": str(error)}})
        else:
            if changed:
                _log.info("old texts were replaced by their hashes", extra={"fields": {"lines": changed}})

    def _ask_canaries(self) -> None:
        try:
            result = self._canary.ask()
        except EngineUnavailable:  # which says nothing of the encoder, and has an alert of its own
            self._asked_at = time.monotonic() - self._canary_seconds + _UPDATE_SECONDS
            return
        self._gauges.set_canary(
            accuracy=result.accuracy,
            recorded=self._canary.accuracy_at_calibration,
            difference=result.difference,
            alike=result.alike,
        )
        self.alarms.canary(alike=result.alike)
        if not result.alike:
            fields = {"difference": result.difference, "accuracy": result.accuracy}
            _log.error("golden queries are not answered as they were at calibration", extra={"fields": fields})
