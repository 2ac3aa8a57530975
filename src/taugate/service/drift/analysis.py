"""Analyzes the traffic of one release, interval by interval: drift alarms, the live window, canaries, the query log."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import orjson
from prometheus_client import CollectorRegistry

from taugate import errors
from taugate.drift import signals
from taugate.drift.monitor import Monitor
from taugate.drift.new_questions import NewQuestions, QuestionGroup, UsualRange
from taugate.drift.observations import JudgedReplies, Judgements, Observations, SlidingWindow
from taugate.policy.arrays import Float32, Float64
from taugate.release.queries import texts_of
from taugate.retrieval.golden import differences, is_answered, overall, search
from taugate.service.drift.alarms import DriftAlarms, DriftGauges
from taugate.service.drift.judging import LiveJudging
from taugate.service.drift.query_log import (
    Judged,
    QueryLog,
    ServedReply,
    WatchedRelease,
    decision_chain,
    judgements,
    observations,
)
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.pipeline.record import ShownReply, random_documents
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads FAISS and redis-py, which not every service needs
    from taugate.retrieval.reader import Release
    from taugate.retrieval.retriever import Retriever
    from taugate.service.replicas import Fleet

_log = logging.getLogger(__name__)

# The queries that raise an alarm come before it: with blocks of 200, the default, a large change takes two of them.
_BEFORE_ALARM = 400
_PASSAGES = 1000  # whose words are counted; a share of 5 % of as many is off by at most 1.4 points (95 %)
_MAX_COMPARED = 2000  # queries of the window, chosen at random: a share of .93 of them is within ±.011 (95 %)
_TESTS: Mapping[str, Callable[[Float32, Float32], float]] = {
    "ks": signals.kolmogorov_smirnov,
    "psi": signals.population_stability,
    "wasserstein": signals.wasserstein,
}
_SHOW_SECONDS = 15.0  # a usual scrape interval of Prometheus
# Between two updates of the alarms: many queries at once take hardly longer than few, and each NumPy call makes the
# interpreter switch to and from the threads that answer requests.
_UPDATE_SECONDS = 5.0
_SECOND_STAGE_SECONDS = 5.0  # for a second stage to score its known pairs, as at load
_FORGET_SECONDS = 600.0  # between two checks for old texts; of all workers, one replaces them once an hour


@dataclass(frozen=True)
class CanaryResult:
    """The outcome of running the golden queries."""

    accuracy: float  # share of the golden queries with a relevant document in their top-K, 0…1
    # largest difference between a similarity and its record; with an engine, the median (`golden.overall`)
    difference: float
    # whether the difference is within the release's tolerance and at most one query, as when two documents tie,
    # has lost its relevant document
    alike: bool


class Canary:
    """The golden queries of a release."""

    def __init__(self, release: "Release", retriever: "Retriever") -> None:
        """Prepare the canary; a retriever on one thread disturbs requests least."""
        self._release, self._retriever = release, retriever

    @property
    def retriever(self) -> "Retriever":
        """A retriever on one thread, for searches in the background."""
        return self._retriever

    @property
    def accuracy_at_calibration(self) -> float:
        """Accuracy of the golden queries at calibration, 0…1."""
        golden = self._release.golden
        return float(np.mean([not {*query.relevant}.isdisjoint(query.documents) for query in golden]))

    def run(self) -> CanaryResult:
        """Search for the golden queries one after another."""
        manifest = self._release.manifest
        in_engine = manifest.engine is not None
        hits, distances = list[bool](), list[float]()
        for query in self._release.golden:
            try:
                top = search(self._retriever, [query])
            except errors.EncoderUnavailable:
                raise
            except errors.EncoderError:  # the vectors are not finite
                hits.append(False)
                distances.append(np.inf)
                continue
            hits.append(is_answered(query, self._release.documents.at(top.positions[0])))
            try:
                distance = differences(top, [query], in_engine=in_engine)[0]
                distances.append(float(np.nan_to_num(distance, nan=np.inf)))
            except errors.ReleaseError:
                distances.append(np.inf)
        accuracy = float(np.mean(hits))
        accurate = accuracy >= self.accuracy_at_calibration - 1.5 / len(hits)
        difference = overall(np.array(distances, dtype=np.float32), in_engine=in_engine)
        alike = difference <= manifest.golden_tolerance and accurate and self._second_stage_is_alike()
        return CanaryResult(accuracy, difference, alike)

    def _second_stage_is_alike(self) -> bool:
        """Return whether a second stage gives the known pairs their scores; if not, it is paused."""
        # True without a second stage, and if it gives no scores.
        second = self._retriever.second
        if second is None:
            return True
        try:
            second.check(time.monotonic() + _SECOND_STAGE_SECONDS)
        except errors.OtherReranker:
            second.pause()
            return False
        except (
            errors.TaugateError
        ):  # it is not available, which says nothing about its scores; another alert tells of it
            second.pause()
        return True


class LiveQuestions:
    """The questions under the latest alarm of one process. One thread adds replies; any may read `groups`."""

    def __init__(self, release: WatchedRelease) -> None:
        # the groups of new questions, the most frequent first; empty before the first alarm
        self.groups: list[QuestionGroup] = []
        self._release = release
        self._recent: deque[tuple[str, float, float]] = deque()  # text, time, best similarity
        self._alarm = False

    @cached_property
    def _collected(self) -> NewQuestions:
        """No questions yet; made in the thread of the analysis, because words are counted for some 0.1 s."""
        release = self._release
        usual = UsualRange.of(release.reference.top[:, 0])
        return NewQuestions(usual, texts_of(release.questions), self._passages())

    def _passages(self) -> list[str]:
        documents = self._release.documents
        if documents is None:
            return []
        spread = np.linspace(0, len(documents) - 1, min(len(documents), _PASSAGES)).astype(np.int64)
        try:
            return [document.encoded_text for document in documents.at(spread)]
        except errors.ReleaseError:  # the words of the calibration's questions are then all there is
            return []

    def add(self, served: Sequence[ServedReply], *, alarm: bool) -> None:
        """Add replies, of which those count that drift compares; `alarm` is whether an alarm is on after them."""
        self._recent += [
            (reply.query.text, reply.at, float(reply.record.similarities[0]))
            for reply in served
            if len(reply.record.similarities)
        ]
        if alarm and not self._alarm:
            self._collected.forget_unusual()
        self._alarm = alarm
        while len(self._recent) > (0 if alarm else _BEFORE_ALARM):
            text, at, best = self._recent.popleft()
            self._collected.add(text, at, best, is_new=alarm)
        if alarm:
            self.groups = self._collected.groups()


class LiveWindow:
    """The latest queries and judgements. Belongs to one thread at a time; any may read `overlap`, their COE and ROE."""

    def __init__(self, release: WatchedRelease, settings: Settings, gauges: DriftGauges, monitor: Monitor) -> None:
        self._reference, self._drawn = release.reference, release.manifest.bootstrap
        self._gauges, self._monitor = gauges, monitor
        max_queries, seconds = settings.drift.window_queries, settings.drift.window_seconds
        self._queries = SlidingWindow[Observations](max_queries, seconds)
        self._correct = SlidingWindow[Judgements](max_queries, seconds)
        self._replies = SlidingWindow[JudgedReplies](max_queries, seconds)
        self._rng = np.random.default_rng()
        self.overlap = signals.LiveOverlap(None, None, None)
        calibrated = {signal.name: signal.means for signal in monitor.queries.signals}
        calibrated |= {signal.name: signal.means for signal in monitor.feedback.signals}
        gauges.set_references(_shares(calibrated) | _best(self._reference.top))

    def add_queries(self, queries: Observations) -> None:
        """Add answered queries."""
        self._gauges.observe_queries(queries)
        self._queries.append(queries)

    def add_judgements(self, correct: Judgements, replies: JudgedReplies) -> None:
        """Add documents that were judged relevant, and judged replies."""
        self._gauges.observe_judgements(correct, replies)
        self._correct.append(correct)
        self._replies.append(replies)

    def show(self, now: float) -> None:
        """Set the gauges and `overlap` from the window at `now`, a Unix time in seconds."""
        queries = self._queries.at(now)
        if not queries:
            self.overlap = signals.LiveOverlap(None, None, None)
            return
        reference, observed = self._reference, Observations.joined(queries)
        correct = Judgements.joined([Judgements.none(), *self._correct.at(now)])
        replies = JudgedReplies.joined([JudgedReplies.none(), *self._replies.at(now)])
        compared = observed.top[self._rng.permutation(len(observed))[:_MAX_COMPARED]].ravel()
        self.overlap = signals.live_overlap(observed, correct, reference, self._drawn)
        means = self._means(observed, replies)
        self._gauges.set_window(
            self.overlap,
            {"topk": observed.top.size, "random": observed.random.size, "correct": len(correct)},
            {name: test(compared, reference.top.ravel()) for name, test in _TESTS.items()},
            {
                name: float(np.abs(signals.cohens_h(live, calibrated)).max())
                for name, (live, calibrated) in means.items()
            },
            _shares({name: live for name, (live, _) in means.items()}) | _best(observed.top),
        )

    def _means(self, observed: Observations, replies: JudgedReplies) -> dict[str, tuple[Float64, Float64]]:
        """Return each signal's means, (V,) float64, of the window and at calibration."""
        means = {
            signal.name: (signal.variables(observed).mean(axis=0), signal.means)
            for signal in self._monitor.queries.signals
        }
        if len(replies):
            for judged in self._monitor.feedback.signals:
                means[judged.name] = judged.variables(replies).mean(axis=0), judged.means
        return means


def _best(top: Float32) -> dict[str, float]:
    """Return the mean best similarity of (n, K) results: a number that people know, of a signal with many variables."""
    return {"topk_similarity": float(top[:, 0].mean())} if len(top) else {}


def _shares(means: Mapping[str, Float64]) -> dict[str, float]:
    """Return the means of the signals that have one variable, a share that people can read."""
    return {name: float(values[0]) for name, values in means.items() if len(values) == 1}


class TrafficAnalysis:
    """The traffic of one release in one process. Belongs to one thread at a time.

    Any thread may read `alarms.report` and `live.overlap`.
    """

    def __init__(
        self,
        release: WatchedRelease,
        canary: Canary | None,
        settings: Settings,
        registry: CollectorRegistry,
        workers: WorkerStore,
        fleet: "Fleet | None" = None,
    ) -> None:
        """Start without traffic; `canary` is None if the release cannot search for its golden queries itself."""
        theta = signals.theta_of(release.reference, release.manifest.bootstrap.overlap_percentile)
        self._gauges = DriftGauges(registry, release.reference, theta)
        self.alarms = DriftAlarms(release, settings, self._gauges, fleet or (workers if workers.shared else None))
        self.live = LiveWindow(release, settings, self._gauges, self.alarms.monitor)
        self._canary = canary
        if canary is None:
            self._gauges.canary_timestamp.set(math.nan)  # so that no alert takes it for one that no longer runs
        self._stores: list[WorkerStore | Fleet] = [workers] if fleet is None else [workers, fleet]
        k, components = release.reference.top.shape[1], release.reference.component_means.shape[1]
        random = random_documents(release.manifest)
        self._observations = partial(observations, k=k, random=random, components=components)
        path = settings.drift.query_log
        self._query_log = None
        if path is not None:
            texts, chain = settings.drift.query_log_texts, decision_chain(settings)
            self._query_log = QueryLog(path, release, texts=texts, chain=chain)
        self._chained = self._query_log if settings.drift.query_log_chain else None
        self.questions = None
        if path is not None and settings.drift.query_log_texts:  # without this consent, no text is kept
            self.questions = LiveQuestions(release)
        self._log_days = settings.drift.query_log_days
        self._texts_forgotten_at = -math.inf
        self._canary_seconds = settings.drift.canary_seconds
        self._window_set_at = self._alarms_updated_at = time.monotonic()
        self._canary_run_at = -math.inf
        self._judging = None
        if settings.drift.judge_share and canary is not None:
            self._judging = LiveJudging(release, canary.retriever, settings, registry, fleet)
        self._queries: list[Observations] = []
        self._to_log: list[ServedReply] = []
        self._judged: list[Judged] = []

    def analyze(self, served: Sequence[ServedReply], judged: Sequence[Judged], lost: int = 0) -> None:
        """Add the traffic since the last call, and do what is due: alarms, gauges, canaries, old texts."""
        # `lost` is the number of further queries, which were answered faster than they could be analyzed.
        self._gauges.lost.inc(lost)
        if served:
            shown = {reply.query_id: ShownReply.of(reply.query, reply.record).pack() for reply in served}
            for store in self._stores:
                store.remember(served[-1].at, shown)
        self._queries.append(self._observations(served))
        if self._chained is not None:
            self._chained.write(served, judged)  # at once, so that a kill loses a second
        elif self._query_log is not None:
            self._to_log += served
        self._judged += judged
        if self._judging is not None:
            self._judging.offer(served)
            if self._judging.judged:
                self.alarms.set_loss(self._judging.bounds)
        now = time.monotonic()
        if now >= self._alarms_updated_at + _UPDATE_SECONDS:
            self._alarms_updated_at = now
            self._update_alarms()
        if now >= self._window_set_at + _SHOW_SECONDS:
            self._window_set_at = now
            self.live.show(time.time())
        if now >= self._texts_forgotten_at + _FORGET_SECONDS:
            self._texts_forgotten_at = now
            if self._query_log is not None and self._log_days is not None:
                self._query_log.forget_old_texts(self._log_days)
                if self._judging is not None:
                    self._judging.forget_old_texts()
        if self._canary is not None and now >= self._canary_run_at + self._canary_seconds:
            self._canary_run_at = now
            self._run_canary(self._canary)

    def close(self, *, forget: bool) -> None:
        """Update the alarms with the remaining traffic and reset the metrics; see DriftWatch.close."""
        self._update_alarms()
        if self._judging is not None:
            self._judging.close()
        if self._chained is not None:
            self._chained.seal()
        if forget:
            self.alarms.forget()
        self._gauges.close()

    def _update_alarms(self) -> None:
        queries = Observations.joined([self._observations([]), *self._queries])
        served, judged = self._to_log, self._judged
        correct, replies = judgements(judged)
        self._queries, self._to_log, self._judged = [], [], []
        self.live.add_queries(queries)
        self.live.add_judgements(correct, replies)
        self.alarms.update(queries, replies)
        if self.questions is not None:
            self.questions.add(served, alarm=orjson.loads(self.alarms.report)["alarm"])
        if self._query_log is not None and self._chained is None:
            self._query_log.write(served, judged)

    def _run_canary(self, canary: Canary) -> None:
        try:
            result = canary.run()
        except (
            errors.EncoderUnavailable,
            errors.EngineUnavailable,
        ):  # says nothing about the model; other alerts tell of it
            self._canary_run_at = time.monotonic() - self._canary_seconds + _UPDATE_SECONDS
            return
        gauges = self._gauges
        gauges.canary_accuracy.set(result.accuracy)
        gauges.canary_accuracy_reference.set(canary.accuracy_at_calibration)
        gauges.canary_difference.set(result.difference)
        gauges.canary_timestamp.set_to_current_time()
        gauges.set_alarm("canary", on=not result.alike, evidence=float(not result.alike))
        self.alarms.canary(alike=result.alike)
        if not result.alike:
            fields = {"difference": result.difference, "accuracy": result.accuracy}
            _log.error("golden queries differ from their results at calibration", extra={"fields": fields})
