"""The drift alarms of the deployment, as this process knows them; without shared state, those of this process alone."""

import logging
import os
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson

from taugate.drift.baseline import Baseline, load_baseline
from taugate.drift.monitor import Monitor
from taugate.drift.observations import JudgedReplies, Observations
from taugate.drift.rules import Rules
from taugate.drift.signals import theta_of
from taugate.errors import InputError
from taugate.retrieval.release.layout import baseline_path
from taugate.service.drift.gauges import DriftGauges
from taugate.service.drift.watched import WatchedRelease
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads redis-py, which a service without Redis does not need
    from taugate.service.drift.fleet import Fleet

_log = logging.getLogger(__name__)
_MAX_UNSHARED = 20_000  # queries kept while Redis is away, some 2 MB: enough to show any drift that can be detected


def drift_field(signals: Sequence[str]) -> bytes:
    """Return the field `drift` of a reply, as JSON, for the signals whose alarms are on."""
    return orjson.dumps({"alarm": bool(signals), "signals": signals})


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
        self.report = drift_field([*on, "canary"] if self._canary_failed else on)


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
