"""`taugate drift`: replay recorded query logs through the alarms of a release, or learn its baseline from them."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings.options import Options
from taugate.cli.terminal.command import Group
from taugate.cli.terminal.options import Appearance, AsJson, Releases, command_of, option, variable_help
from taugate.drift.rules import (
    AVERAGE_RUN_LENGTH,
    BLOCK,
    MAX_IN_BLOCK,
    MIN_EFFECT,
    MIN_IN_BLOCK,
    BlockRule,
    Rules,
)
from taugate.errors import InputError


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
        """`auto`, or a number of queries.

        Raises:
            InputError: For any other text.
        """
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
    block = options.block_rule
    if not 0 <= options.smallest_effect <= 1:
        raise InputError("--smallest-effect must be from 0 to 1")
    block_size = BLOCK if block == "auto" else block
    if not options.average_run_length > block_size:
        raise InputError(f"--average-run-length must be more than {block_size}, the queries of one block")
    from taugate.calibration.replay.run import replay_logs

    replay_logs(
        options.releases,
        options.release,
        [*options.logs],
        Rules(options.smallest_effect, options.average_run_length, block),
        baseline_at=options.baseline,
        as_json=options.as_json,
    )
    return 0


def baseline(options: LogOptions) -> int:
    """Learn how far ordinary traffic varies from at least a week of logs; such variation then raises no alarm."""
    rules = Rules(block=options.block_rule)
    from taugate.calibration.replay.run import learn_baseline

    learn_baseline(options.releases, options.release, [*options.logs], rules, as_json=options.as_json)
    return 0


command = Group("drift", help="Detect drift in recorded queries.")
command.add_command(command_of("replay", replay, ReplayOptions))
command.add_command(command_of("baseline", baseline, LogOptions))
