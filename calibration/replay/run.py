"""What `taugate drift replay` does: lines to stdout, and a page."""

import argparse
import sys
from pathlib import Path

import numpy as np
import orjson

from taugate.calibration.replay.log import AnsweredLog
from taugate.calibration.replay.page import render
from taugate.calibration.replay.replayed import count_of, format_utc, replay
from taugate.drift.baseline import Baseline, load_baseline
from taugate.drift.monitor import Monitor, Rules
from taugate.retrieval.release.layout import baseline_path


def learn(arguments: argparse.Namespace, rules: Rules) -> int:
    """Write the baseline of a release beside it. Raises InputError, and writes nothing, where the log is too short."""
    answered = AnsweredLog.read(arguments.releases, arguments.release, arguments.logs)
    monitor, queries = answered.monitor(rules), answered.log.queries
    learnt = Baseline.learn(answered.release, queries, monitor)
    path = baseline_path(arguments.releases, answered.release)
    learnt.save(path)
    if arguments.json:
        found = learnt.model_dump(include={"release", "days", "blocks", "queries", "signals"})
        sys.stdout.write(orjson.dumps(found | {"path": str(path)}).decode() + "\n")
    else:
        sys.stdout.write(f"{path}\n")
    first, last = (format_utc(at) for at in queries.at[[0, -1]].tolist())
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


def replay_log(arguments: argparse.Namespace, rules: Rules) -> int:
    """Print what would have alarmed, and draw it. Raises InputError or ReleaseError."""
    logs: list[Path] = arguments.logs
    answered = AnsweredLog.read(arguments.releases, arguments.release, logs)
    calibrated = answered.monitor(rules)
    baseline = _baseline(arguments.baseline, answered.release, calibrated)
    monitor = calibrated if baseline is None else answered.monitor(rules, baseline.bounds)
    replayed = replay(answered.log, monitor, calibrated)
    page: Path = arguments.page or logs[0].with_name(f"{logs[0].name}.html")
    page.write_text(render(answered, replayed, baseline), encoding="utf-8")
    queries, judged, blocks = len(answered.log.queries), len(answered.log.judged), len(replayed.queries.blocks)
    if arguments.json:
        moments = [
            {"signal": each.signal, "at": each.at, "after": each.after, "alarm": each.on} for each in replayed.moments
        ]
        found = {"release": answered.release, "queries": queries, "judged": judged, "blocks": blocks}
        found |= {"baseline": baseline is not None, "moments": moments, "page": str(page)}
        sys.stdout.write(orjson.dumps(found).decode() + "\n")
        return 0
    for each in replayed.moments:
        what = "alarm" if each.on else "over"
        sys.stdout.write(f"{format_utc(each.at)} UTC  {each.signal:16}  {what:5}  after {each.after:,}\n")
    counts = [f"{queries:,} queries", f"{judged:,} judgements", count_of(blocks, "block")]
    alarms = count_of(sum(each.on for each in replayed.moments), "alarm")
    sys.stderr.write(f"{', '.join(counts)}: {alarms}; drawn in {page}\n")
    return 0


def _baseline(asked: Path | None, release: str, monitor: Monitor) -> Baseline | None:
    """Of a folder, the file for the release, as the service does."""
    if asked is None:
        return None
    return load_baseline(baseline_path(asked, release) if asked.is_dir() else asked, release, monitor)
