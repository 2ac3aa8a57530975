"""What `taugate drift baseline` does: learns how far ordinary traffic goes, and says what that means."""

import argparse
import sys

import numpy as np
import orjson

from taugate.calibration.replay.answered import Answered
from taugate.calibration.replay.words import utc
from taugate.drift.baseline import Baseline
from taugate.drift.monitor import Monitor, Rules
from taugate.retrieval.release.layout import baseline_path


def run(arguments: argparse.Namespace, rules: Rules) -> int:
    """Write the baseline of a release beside it. Raises InputError, and writes nothing, where the log is too short."""
    answered = Answered.read(arguments.releases, arguments.release, arguments.logs)
    monitor, queries = answered.monitor(rules), answered.log.queries
    learnt = Baseline.learn(answered.release, queries, monitor)
    path = baseline_path(arguments.releases, answered.release)
    learnt.save(path)
    if arguments.json:
        found = learnt.model_dump(include={"release", "days", "blocks", "queries", "signals"})
        sys.stdout.write(orjson.dumps(found | {"path": str(path)}).decode() + "\n")
    else:
        sys.stdout.write(f"{path}\n")
    first, last = (utc(at) for at in queries.at[[0, -1]].tolist())
    sys.stderr.write(
        f"learnt from {learnt.queries:,} queries of {learnt.days} days, {learnt.blocks:,} blocks: "
        f"{first} to {last} UTC\n"
    )
    for signal in _unlike_the_calibration(learnt, monitor):
        sys.stderr.write(
            f"warning: {signal}: this log's traffic is not like the calibration's; with the baseline that raises no "
            "alarm, but the release's calibrated statements do not hold for it: recalibrate if it lasts "
            "(`taugate drift replay` draws when it was)\n"
        )
    sys.stderr.write(f"put TAUGATE_DRIFT_BASELINE={path.absolute()} into the service's settings\n")
    return 0


def _unlike_the_calibration(learnt: Baseline, monitor: Monitor) -> list[str]:
    """Signals whose ordinary range goes beyond what the calibration alone allows."""
    allowed = {alarm.signal: alarm.bounds for alarm in monitor.alarms}
    return [
        name
        for name, each in learnt.signals.items()
        if not allowed[name].hold(np.array(each.lower)) or not allowed[name].hold(np.array(each.upper))
    ]
