"""Which alarms are on, for the deployment as this process knows it; a process that shares nothing knows its own."""

import logging
import os
from collections import deque
from collections.abc import Sequence

import orjson

from taugate.drift.baseline import Baseline, load_baseline
from taugate.drift.monitor import Monitor, Rules, theta_of
from taugate.drift.observations import Judgements, Observations
from taugate.errors import InputError
from taugate.retrieval.release.layout import baseline_path
from taugate.retrieval.release.reader import Release
from taugate.service.drift.fleet import Fleet, shared_state
from taugate.service.drift.gauges import DriftGauges
from taugate.service.settings import Settings

_log = logging.getLogger("taugate.drift")
_MOST_UNSHARED = 20_000  # queries kept while Redis is away, some 2 MB: any drift that is found at all shows in so many


def said(signals: Sequence[str]) -> bytes:
    """What a reply says of drift, as JSON."""
    return orjson.dumps({"alarm": bool(signals), "signals": signals})


NOT_WATCHED = said([])


class Verdict:
    """Of one release and one thread at a time; `reply` may be read by any."""

    def __init__(self, release: Release, settings: Settings, gauges: DriftGauges, fleet: Fleet | None) -> None:
        self._gauges = gauges
        self.monitor = _monitor(release, settings, gauges)
        self._shared = shared_state(fleet, release.manifest.release_id, self.monitor.fingerprint)
        self._unshared: deque[tuple[Observations, Judgements]] = deque()
        self._canary = False
        self.reply = NOT_WATCHED
        gauges.threshold(self.monitor.threshold)
        for alarm in self.monitor.alarms:
            gauges.alarm(alarm.signal, on=False, evidence=0.0)

    def weigh(self, queries: Observations, judged: Judgements) -> None:
        """Take what came since the last time, which may be nothing: other replicas may have seen something."""
        before = {alarm.signal for alarm in self.monitor.alarms if alarm.on}
        blocks, shared = self._weigh(queries, judged)
        self._gauges.weighed(blocks, self.monitor.queries.blocks.size, shared=shared)
        for alarm in self.monitor.alarms:
            self._gauges.alarm(alarm.signal, on=alarm.on, evidence=alarm.share_of_threshold)
            if alarm.on != (alarm.signal in before):
                message = "the traffic has drifted" if alarm.on else "the traffic is within its bounds again"
                _log.warning(message, extra={"fields": {"signal": alarm.signal}})
        self._say()

    def canary(self, *, alike: bool) -> None:
        """Whether the golden queries were answered as they were at calibration."""
        self._canary = not alike
        self._say()

    def forget(self) -> None:
        """The release has left: should it come back, its alarms begin anew."""
        if self._shared is not None:
            self._shared.drop()

    def _weigh(self, queries: Observations, judged: Judgements) -> tuple[int, bool]:
        """How many blocks are complete with these, and whether that was told to all others."""
        if self._shared is None:
            return self._add([(queries, judged)]), False
        monitor, blocks = self.monitor, 0
        own = monitor.pack()  # what was kept from the others is in it

        def work(found: bytes | None) -> bytes | None:
            nonlocal blocks
            try:
                monitor.restore(own if found is None else found)
            except ValueError:  # others can write there as well
                monitor.restore(own)
                found = None
            new = [(queries, judged)] if found is None else [*self._unshared, (queries, judged)]
            if found is not None and not any(len(part) for parts in new for part in parts):
                return None
            blocks = self._add(new)
            return monitor.pack()

        if self._shared.change(work):
            self._unshared.clear()
            return blocks, True
        monitor.restore(own)
        self._keep(queries, judged)
        return self._add([(queries, judged)]), False

    def _add(self, parts: Sequence[tuple[Observations, Judgements]]) -> int:
        """Weigh them; how many blocks are complete with them."""
        blocks = 0
        for queries, judged in parts:
            blocks += sum(weighed.fifth.block is not None for weighed in self.monitor.weigh(queries))
            self.monitor.judge(judged)
        return blocks

    def _keep(self, queries: Observations, judged: Judgements) -> None:
        """For when the others can be reached again: the latest."""
        self._unshared.append((queries, judged))
        while sum(len(each) for each, _ in self._unshared) > _MOST_UNSHARED and len(self._unshared) > 1:
            self._unshared.popleft()

    def _say(self) -> None:
        on = [alarm.signal for alarm in self.monitor.alarms if alarm.on]
        self.reply = said([*on, "canary"] if self._canary else on)


def _monitor(release: Release, settings: Settings, gauges: DriftGauges) -> Monitor:
    """With the baseline where there is one that fits; without it otherwise, and that is said."""
    reference, name = release.reference, release.manifest.release_id
    theta = theta_of(reference, release.manifest.bootstrap.overlap_percentile)
    rules = Rules(settings.drift.smallest_effect, settings.drift.average_run_length, settings.drift.block)
    calibrated = Monitor(reference, theta, rules)
    try:
        baseline = _baseline(settings, name, calibrated)
    except InputError as error:
        gauges.baseline(in_force=False, refused=True)
        _log.warning("drift is watched without a baseline", extra={"fields": {"reason": str(error), "release": name}})
        return calibrated
    gauges.baseline(in_force=baseline is not None, refused=False)
    return calibrated if baseline is None else Monitor(reference, theta, rules, baseline.bounds)


def _baseline(settings: Settings, release: str, monitor: Monitor) -> Baseline | None:
    """What TAUGATE_DRIFT_BASELINE names; of a folder, the file for this release where it has one."""
    path = settings.drift.baseline
    if path is not None and os.path.isdir(path):  # noqa: PTH112 (False, and no error, for what cannot be a folder)
        path = baseline_path(path, release)
        if not os.path.lexists(path):
            _log.info("no baseline for this release", extra={"fields": {"path": str(path)}})
            return None
    return None if path is None else load_baseline(path, release, monitor)
