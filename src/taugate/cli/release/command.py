"""`taugate release`: the actions, and the option that all of them have."""

import argparse
from pathlib import Path

from taugate.cli.release import compare, erase, inspect, promote, remote


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `taugate release` to its parser, and the option that all of them have."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    for group in (inspect, compare, promote, erase, remote):
        group.add_actions(actions)
    for action in actions.choices.values():
        action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
