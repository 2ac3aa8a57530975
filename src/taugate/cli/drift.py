"""`taugate drift`: replay recorded query logs through the alarms of a release, or learn its baseline from them."""

import argparse
from pathlib import Path

from taugate.cli.terminal.options import add_action, variable_help
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `taugate drift` to its parser."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "replay a query log (TAUGATE_QUERY_LOG) through the alarms of a release, and draw when they would have fired"
    action = add_action(actions, "replay", _replay, text)
    _add_log_options(action)
    action.add_argument("--page", metavar="FILE", type=Path, help="page to write (default: LOG with the suffix .html)")
    action.add_argument(
        "--smallest-effect",
        metavar="X",
        type=float,
        default=MIN_EFFECT,
        help=variable_help("drift_smallest_effect"),
    )
    action.add_argument(
        "--average-run-length",
        "--seldom",
        metavar="N",
        type=float,
        default=AVERAGE_RUN_LENGTH,
        help=variable_help("drift_average_run_length"),
    )
    action.add_argument("--baseline", metavar="FILE", type=Path, help=variable_help("drift_baseline"))
    text = (
        "learn from at least a week of query logs how far ordinary traffic varies; such variation then raises no alarm"
    )
    _add_log_options(add_action(actions, "baseline", _learn_baseline, text))


def _add_log_options(action: argparse.ArgumentParser) -> None:
    """Add the options that both actions have: the logs, their release, the block size, and the output format."""
    action.add_argument("logs", metavar="LOG", type=Path, nargs="+", help="query logs of the service, in any order")
    action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="the releases directory")
    action.add_argument(
        "--release", metavar="ID", help="the release that served the queries (default: the current one)"
    )
    action.add_argument("--block", metavar="N|auto", default=str(BLOCK), help=variable_help("drift_block"))
    action.add_argument("--json", action="store_true", help="print one JSON object instead of lines")


def _replay(arguments: argparse.Namespace) -> int:
    """Check the options and replay the logs."""
    block = _parse_block(arguments.block)
    if not 0 <= arguments.smallest_effect <= 1:
        raise InputError("--smallest-effect must be from 0 to 1")
    block_size = BLOCK if block == "auto" else block
    if not arguments.average_run_length > block_size:
        raise InputError(f"--average-run-length must be more than {block_size}, the queries of one block")
    from taugate.calibration.replay.run import replay_logs  # drawing needs the extra `calibration`

    replay_logs(
        arguments.releases,
        arguments.release,
        arguments.logs,
        Rules(arguments.smallest_effect, arguments.average_run_length, block),
        baseline_at=arguments.baseline,
        page=arguments.page,
        as_json=arguments.json,
    )
    return 0


def _learn_baseline(arguments: argparse.Namespace) -> int:
    """Check the options and learn the baseline."""
    block = _parse_block(arguments.block)
    from taugate.calibration.replay.run import learn_baseline

    rules = Rules(block=block)
    learn_baseline(arguments.releases, arguments.release, arguments.logs, rules, as_json=arguments.json)
    return 0


def _parse_block(text: str) -> BlockRule:
    """Parse --block: `auto`, or a number of queries.

    Raises:
        InputError: For any other text.
    """
    if text == "auto":
        return "auto"
    block = int(text) if text.isdecimal() and len(text) <= len(str(MAX_IN_BLOCK)) else 0
    if not MIN_IN_BLOCK <= block <= MAX_IN_BLOCK:
        raise InputError(f"--block must be auto, or from {MIN_IN_BLOCK} to {MAX_IN_BLOCK} queries")
    return block
