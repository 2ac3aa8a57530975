"""`taugate drift`: replay recorded query logs through the alarms of a release, or learn its baseline from them."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.cli.terminal.command import Group
from taugate.cli.terminal.options import Appearance, AsJson, Releases, command_of, option, variable_help
from taugate.cli.terminal.output import print_result, printable, say
from taugate.drift.signals import AVERAGE_RUN_LENGTH, BLOCK, MAX_IN_BLOCK, MIN_EFFECT, MIN_IN_BLOCK, BlockRule, Rules
from taugate.errors import InputError
from taugate.evidence.options import Options
from taugate.release.layout import baseline_path
from taugate.storage.files import Json

if TYPE_CHECKING:
    from taugate.drift.live_loss import LiveLoss


@dataclass(frozen=True, kw_only=True)
class LogOptions(Options):
    """The options of both actions: the logs, their release, the size of a block, and the output format."""

    logs: Annotated[tuple[Path, ...], Appearance("LOG", positional=True)] = Field(
        description="query logs of the service, in any order"
    )
    releases: Releases
    release: str | None = option(None, "the release that served the queries (default: the current one)", "ID")
    block: str = option(str(BLOCK), variable_help("drift_block"), "N|auto")
    as_json: AsJson = False

    @property
    def block_rule(self) -> BlockRule:
        """`auto`, or a number of queries."""
        if self.block == "auto":
            return "auto"
        block = int(self.block) if self.block.isdecimal() and len(self.block) <= len(str(MAX_IN_BLOCK)) else 0
        if not MIN_IN_BLOCK <= block <= MAX_IN_BLOCK:
            raise InputError(f"--block must be auto, or from {MIN_IN_BLOCK} to {MAX_IN_BLOCK} queries")
        return block


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(LogOptions):
    """The options of `taugate drift replay`."""

    smallest_effect: float = option(MIN_EFFECT, variable_help("drift_smallest_effect"))
    average_run_length: Annotated[float, Appearance("N", ("--average-run-length", "--seldom"))] = option(
        AVERAGE_RUN_LENGTH, variable_help("drift_average_run_length")
    )
    baseline: Path | None = option(None, variable_help("drift_baseline"))


def replay(options: ReplayOptions) -> int:
    """Replay a query log (TAUGATE_QUERY_LOG) through the alarms of a release, and print when they would have fired."""
    if not 0 <= options.smallest_effect <= 1:
        raise InputError("--smallest-effect must be from 0 to 1")
    rules = Rules(options.smallest_effect, options.average_run_length, options.block_rule)
    if not rules.average_run_length > rules.smallest_block:
        raise InputError(f"--average-run-length must be more than {rules.smallest_block}, the queries of one block")
    # Imported here because they load NumPy.
    from taugate.calibration.replay import NO_TEXTS, AnsweredLog, new_questions, replay_log
    from taugate.drift.drawn import replay_loss
    from taugate.drift.monitor import load_baseline

    answered = AnsweredLog.read(options.releases, options.release, options.logs)
    monitor, path = answered.monitor(rules), options.baseline
    if path is not None:  # a file, or a folder of baselines by release
        path = baseline_path(path, answered.release) if path.is_dir() else path
        monitor = answered.monitor(rules, load_baseline(path, answered.release, monitor).bounds)
    replayed = replay_log(answered.log, monitor)
    questions = new_questions(answered, replayed, options.logs)
    loss = replay_loss(options.logs, answered.release, answered.promised)
    queries, judged, blocks = len(answered.log.queries), len(answered.log.judged), len(replayed.blocks)
    if options.as_json:
        moments: list[Json] = [
            {"signal": change.signal, "at": change.at, "after": change.after, "alarm": change.on}
            for change in replayed.moments
        ]
        printed: dict[str, Json] = {"release": answered.release, "queries": queries, "judged": judged, "blocks": blocks}
        printed |= {"baseline": path is not None, "moments": moments}
        printed["loss"] = None if loss is None else _loss_fields(*loss)
        print_result(printed | {"questions": None if questions is None else [*map(asdict, questions)]})
        return 0
    for change in replayed.moments:
        state = "alarm" if change.on else "over"
        print_result(f"{_utc(change.at)} UTC  {change.signal:16}  {state:5}  after {change.after:,}")
    counts = [f"{queries:,} queries", f"{judged:,} judgements", _count(blocks, "block")]
    if loss is not None:
        for line in _loss_lines(*loss):
            print_result(line)
    if answered.log.other_lines:
        counts.append(f"{_count(answered.log.other_lines, 'line')} of other releases")
    say(f"{', '.join(counts)}: {_count(sum(change.on for change in replayed.moments), 'alarm')}")
    if questions is None:
        say(NO_TEXTS)
    elif questions:
        say("least like the calibration under the alarms, by a word that is new in them:")
    for group in questions or ():
        since = f"{group.word or '–':16} since {_utc(group.since)} UTC"
        say(f"{group.count:7,} x {since}  {printable(group.question)}")
    return 0


def _loss_fields(loss: "LiveLoss", broken: int | None) -> dict[str, Json]:
    bounds: dict[str, Json] = {
        name: {"lower": interval.lower, "upper": interval.upper}
        for name, interval in (
            ("all", loss.loss()),
            ("recent", loss.loss(recent=True)),
            ("unanswerable_answered", loss.wrongly_answered()),
        )
    }
    to_go = loss.judgements_to_go
    return {
        **bounds,
        "judgements": loss.judged,
        "promised": loss.limit,
        "broken_after": broken,
        "judgements_to_go": to_go if math.isfinite(to_go) else None,
    }


def _loss_lines(loss: "LiveLoss", broken: int | None) -> Iterator[str]:
    bounds, recent, wrong = loss.loss(), loss.loss(recent=True), loss.wrongly_answered()
    yield (
        f"answers lost: {_percent(bounds.lower)} to {_percent(bounds.upper)}, recently {_percent(recent.lower)} to "
        f"{_percent(recent.upper)}, by {_count(loss.judged, 'judgement')}"
    )
    yield f"answered without a relevant result: {_percent(wrong.lower)} to {_percent(wrong.upper)} of all queries"
    if loss.limit is None:
        yield "nothing is certified, so no promise is compared"
    elif broken is not None:
        yield f"promise broken: more than {_percent(loss.limit)} lost, shown after {_count(broken, 'judgement')}"
    elif loss.judgements_to_go:
        to_go = loss.judgements_to_go
        left = f"{_count(int(to_go), 'judgement')} to go" if math.isfinite(to_go) else "not by as many as so far"
        yield f"unproven: at most {_percent(loss.limit)} promised; {left}"
    else:
        yield f"the promise holds: at most {_percent(loss.limit)}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def baseline(options: LogOptions) -> int:
    """Learn how far ordinary traffic varies from at least a week of logs; such variation then raises no alarm."""
    rules = Rules(block=options.block_rule)
    from taugate.calibration.replay import AnsweredLog  # loads NumPy
    from taugate.drift.monitor import Baseline

    answered = AnsweredLog.read(options.releases, options.release, options.logs)
    monitor, queries = answered.monitor(rules), answered.log.queries
    learnt = Baseline.learn(answered.release, queries, monitor)
    path = baseline_path(options.releases, answered.release)
    learnt.save(path)
    fields = learnt.model_dump(include={"release", "days", "blocks", "queries", "signals"}) | {"path": str(path)}
    print_result(fields if options.as_json else path)
    first, last = map(_utc, queries.at[[0, -1]].tolist())
    learned = f"{learnt.queries:,} queries on {learnt.days} days, {learnt.blocks:,} blocks"
    say(f"learned from {learned}: {first} to {last} UTC")
    allowed = {alarm.signal: alarm.bounds for alarm in monitor.alarms}
    for signal, ordinary in learnt.bounds.items():
        if not all(map(allowed[signal].contain, ordinary)):
            say(
                f"warning: {signal}: the traffic in this log differs from the calibration's; with this baseline it "
                "raises no alarm, but the release's guarantees do not hold for it: recalibrate if it persists "
                "(`taugate drift replay` shows when it happened)"
            )
    say(f"to use it, set TAUGATE_DRIFT_BASELINE={path.absolute()} for the service")
    return 0


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


_KEYS = ("release", "block")
_REPLAY_KEYS = (*_KEYS, "smallest_effect", "average_run_length", "baseline")
command = Group("drift", help="Detect drift in recorded queries.")
command.add_command(command_of("replay", replay, ReplayOptions, keys=_REPLAY_KEYS))
command.add_command(command_of("baseline", baseline, LogOptions, keys=_KEYS))
