"""`taugate drift replay` and `taugate drift baseline`: a recorded query log and the release that answered it."""

import argparse
from pathlib import Path
from typing import Any

from taugate.drift.blocks import BLOCK, FEWEST, MOST
from taugate.drift.monitor import AVERAGE_RUN_LENGTH, SMALLEST_EFFECT, BlockRule, Rules
from taugate.errors import InputError


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `drift` and its actions."""
    parser = commands.add_parser("drift", help="look at recorded traffic")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    text = "run a query log (TAUGATE_QUERY_LOG) through the alarms of a release, and draw what would have alarmed when"
    action: argparse.ArgumentParser = actions.add_parser("replay", help=text, description=text)
    _add_log(action)
    action.add_argument("--page", metavar="FILE", type=Path, help="the drawing; default LOG with .html at its end")
    action.add_argument(
        "--smallest-effect", metavar="X", type=float, default=SMALLEST_EFFECT, help="TAUGATE_DRIFT_SMALLEST_EFFECT"
    )
    action.add_argument("--seldom", metavar="N", type=float, default=AVERAGE_RUN_LENGTH, help="TAUGATE_DRIFT_SELDOM")
    action.add_argument(
        "--baseline", metavar="FILE", type=Path, help="TAUGATE_DRIFT_BASELINE, what `taugate drift baseline` wrote"
    )
    action.set_defaults(run=_replay)
    text = "learn from a week of a query log or more how far ordinary traffic goes, which is then no drift"
    action = actions.add_parser("baseline", help=text, description=text)
    _add_log(action)
    action.set_defaults(run=_baseline)


def _add_log(action: argparse.ArgumentParser) -> None:
    """The log, its release, and the blocks that it is cut into."""
    action.add_argument(
        "logs", metavar="LOG", type=Path, nargs="+", help="what the service wrote, in one file or several, in any order"
    )
    action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
    action.add_argument("--release", metavar="ID", help="the release that answered; default the current one")
    action.add_argument("--block", metavar="N|auto", default=str(BLOCK), help="TAUGATE_DRIFT_BLOCK")
    action.add_argument("--json", action="store_true", help="print one JSON object in place of lines")


def _replay(arguments: argparse.Namespace) -> int:
    block = _block(arguments.block)
    if not 0 <= arguments.smallest_effect <= 1:
        raise InputError("--smallest-effect is from 0 to 1")
    least = BLOCK if block == "auto" else block
    if not arguments.seldom > least:
        raise InputError(f"--seldom is more than {least}, the queries of one block")
    from taugate.calibration.replay.run import replay_log  # what draws pages is an extra

    return replay_log(arguments, Rules(arguments.smallest_effect, arguments.seldom, block))


def _baseline(arguments: argparse.Namespace) -> int:
    block = _block(arguments.block)
    from taugate.calibration.replay.run import learn

    return learn(arguments, Rules(block=block))


def _block(asked: str) -> BlockRule:
    if asked == "auto":
        return "auto"
    block = int(asked) if asked.isdecimal() and len(asked) <= len(str(MOST)) else 0
    if not FEWEST <= block <= MOST:
        raise InputError(f"--block is auto, or from {FEWEST} to {MOST} queries")
    return block
