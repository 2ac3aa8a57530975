"""Replay recorded query logs through the drift alarms, and learn a release's drift baseline from them."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson

from taugate.calibration.replay.log import AnsweredLog
from taugate.calibration.replay.questions import NO_TEXTS, new_questions
from taugate.calibration.replay.replayed import count_of, format_utc, replay_log
from taugate.drift.baseline import Baseline, load_baseline
from taugate.drift.monitor import Monitor
from taugate.drift.rules import Rules
from taugate.retrieval.release.layout import baseline_path


def learn_baseline(releases: Path, release: str | None, logs: Sequence[Path], rules: Rules, *, as_json: bool) -> None:
    """Learn the ordinary range of each drift signal from recorded traffic, and write it beside the release.

    Args:
        releases: The releases directory.
        release: Id of the release that answered, None for the current one.
        logs: Files that the service wrote, in any order.
        rules: Rules of the alarms, for their block size.
        as_json: Print one JSON object instead of the path.

    Raises:
        InputError: If the logs cannot be read or are too short; nothing is written.
        ReleaseError: If the release cannot be read.
    """
    answered = AnsweredLog.read(releases, release, logs)
    monitor, queries = answered.monitor(rules), answered.log.queries
    learnt = Baseline.learn(answered.release, queries, monitor)
    path = baseline_path(releases, answered.release)
    learnt.save(path)
    if as_json:
        printed = learnt.model_dump(include={"release", "days", "blocks", "queries", "signals"})
        sys.stdout.write(orjson.dumps(printed | {"path": str(path)}).decode() + "\n")
    else:
        sys.stdout.write(f"{path}\n")
    first, last = (format_utc(at) for at in queries.at[[0, -1]].tolist())
    sys.stderr.write(
        f"learned from {learnt.queries:,} queries on {learnt.days} days, {learnt.blocks:,} blocks: "
        f"{first} to {last} UTC\n"
    )
    for signal in _signals_beyond_calibration(learnt, monitor):
        sys.stderr.write(
            f"warning: {signal}: the traffic in this log differs from the calibration's; with this baseline it raises "
            "no alarm, but the release's guarantees do not hold for it: recalibrate if it persists "
            "(`taugate drift replay` shows when it happened)\n"
        )
    sys.stderr.write(f"to use it, set TAUGATE_DRIFT_BASELINE={path.absolute()} for the service\n")


def _signals_beyond_calibration(learnt: Baseline, monitor: Monitor) -> list[str]:
    """Return the signals whose ordinary range exceeds the bounds of the calibration."""
    allowed = {alarm.signal: alarm.bounds for alarm in monitor.alarms}
    return [
        name
        for name, ordinary in learnt.signals.items()
        if not allowed[name].contain(np.array(ordinary.lower)) or not allowed[name].contain(np.array(ordinary.upper))
    ]


def replay_logs(
    releases: Path,
    release: str | None,
    logs: Sequence[Path],
    rules: Rules,
    *,
    baseline_at: Path | None,
    as_json: bool,
) -> None:
    """Print when each drift alarm would have begun and ended, and which questions were new under it.

    Args:
        releases: The releases directory.
        release: Id of the release that answered, None for the current one.
        logs: Files that the service wrote, in any order.
        rules: Rules of the alarms.
        baseline_at: A baseline that widens the bounds, or its folder; None for the bounds of the calibration.
        as_json: Print one JSON object instead of a line per change.

    Raises:
        InputError: If the logs or the baseline cannot be used.
        ReleaseError: If the release cannot be read.
    """
    answered = AnsweredLog.read(releases, release, logs)
    monitor = answered.monitor(rules)
    baseline = _load_baseline(baseline_at, answered.release, monitor)
    replayed = replay_log(answered.log, monitor if baseline is None else answered.monitor(rules, baseline.bounds))
    questions = new_questions(answered, replayed, logs)
    queries, judged, blocks = len(answered.log.queries), len(answered.log.judged), len(replayed.blocks)
    if as_json:
        moments = [
            {"signal": change.signal, "at": change.at, "after": change.after, "alarm": change.on}
            for change in replayed.moments
        ]
        printed = {"release": answered.release, "queries": queries, "judged": judged, "blocks": blocks}
        printed |= {"baseline": baseline is not None, "moments": moments}
        printed["questions"] = None if questions is None else [dataclasses.asdict(group) for group in questions]
        sys.stdout.write(orjson.dumps(printed).decode() + "\n")
        return
    for change in replayed.moments:
        state = "alarm" if change.on else "over"
        sys.stdout.write(f"{format_utc(change.at)} UTC  {change.signal:16}  {state:5}  after {change.after:,}\n")
    counts = [f"{queries:,} queries", f"{judged:,} judgements", count_of(blocks, "block")]
    if answered.log.other_lines:
        counts.append(f"{count_of(answered.log.other_lines, 'line')} of other releases")
    alarms = count_of(sum(change.on for change in replayed.moments), "alarm")
    sys.stderr.write(f"{', '.join(counts)}: {alarms}\n")
    if questions is None:
        sys.stderr.write(f"{NO_TEXTS}\n")
    elif questions:
        sys.stderr.write("least like the calibration under the alarms, by a word that is new in them:\n")
    for group in questions or ():
        question = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in group.question)
        word = f"{group.word or '–':16}"
        sys.stderr.write(f"{group.count:7,} x {word} since {format_utc(group.since)} UTC  {question}\n")


def _load_baseline(path: Path | None, release: str, monitor: Monitor) -> Baseline | None:
    """Load a baseline from a file, or from a folder of baselines by release, as the service does."""
    if path is None:
        return None
    return load_baseline(baseline_path(path, release) if path.is_dir() else path, release, monitor)
