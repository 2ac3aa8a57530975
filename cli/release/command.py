"""`taugate release`: the actions, and the option that all of them have."""

import argparse
from pathlib import Path
from typing import Any

from taugate.cli.release import compare, erase, inspect, promote, remote


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `release` and its actions.

    commands: the subparsers of `taugate`.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "release", help="list, compare, promote, roll back or prune releases"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for group in (inspect, compare, promote, erase, remote):
        group.add_actions(actions)
    for action in actions.choices.values():
        action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
