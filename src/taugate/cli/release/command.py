"""`taugate release`: the actions and their common option."""

import argparse
from pathlib import Path

from taugate.cli.release import compare, erase, inspect, promote, remote


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `taugate release` and their common option to its parser."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    for group in (inspect, compare, promote, erase, remote):
        group.add_actions(actions)
    for action in actions.choices.values():
        action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="the releases directory")
