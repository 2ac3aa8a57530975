"""`taugate release …`: what a releases directory holds, and which release is current."""

import argparse
import sys
from pathlib import Path
from typing import Any

from calibration import push_command, signing_command
from calibration.signing_command import trusted_keys
from retrieval.errors import ReleaseError
from retrieval.release.catalog import current_id, find, promote, release_ids
from retrieval.release.layout import MANIFEST
from retrieval.release.verify import verify


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `release` and its actions."""
    parser = commands.add_parser("release", help="list, show, verify or promote releases")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for name, run, text in (
        ("list", _list, "ids, oldest first; * marks the current one"),
        ("show", _show, "the manifest, as stored"),
        ("verify", _verify, "check every digest; without ID, of all releases"),
        ("promote", _promote, "make a release the current one, if it verifies"),
        ("diff", _diff, "what differs from release A to release B"),
        ("correlations", _correlations, "accuracy against COE, ROE, τ and isotropy, over the releases of one data set"),
    ):
        action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
        action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
        if name == "promote":
            action.add_argument("id", metavar="ID", help="release id")
        elif name == "diff":
            action.add_argument("a", metavar="A", help="the old release's id")
            action.add_argument("b", metavar="B", help="the new release's id")
        elif name not in {"list", "correlations"}:
            default = "the current one" if name == "show" else "all"
            action.add_argument("id", metavar="ID", nargs="?", help=f"release id; default {default}")
        if name == "verify":
            action.add_argument("--trusted-keys", metavar="PATH", type=Path, help="who must have signed it, PEM")
        action.set_defaults(run=run)
    signing_command.add_parser(actions)
    push_command.add_parser(actions)


def _diff(arguments: argparse.Namespace) -> int:
    """Comparing needs the extra `calibration`, and the others do not."""
    from calibration.release_compare import diff as compare

    return compare(arguments)


def _correlations(arguments: argparse.Namespace) -> int:
    """As `_diff`."""
    from calibration.release_compare import table as correlate

    return correlate(arguments)


def _list(arguments: argparse.Namespace) -> int:
    names = release_ids(arguments.releases)
    try:
        current = current_id(arguments.releases)
    except ReleaseError as error:
        current = None
        sys.stderr.write(f"taugate: {error}\n")
    for name in names:
        sys.stdout.write(f"{'*' if name == current else ' '} {name}\n")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    sys.stdout.buffer.write((find(arguments.releases, arguments.id) / MANIFEST).read_bytes())
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    """Every release is looked at, also after one that fails; the first failure decides the exit code."""
    names = [arguments.id] if arguments.id else release_ids(arguments.releases)
    failed, trusted = 0, trusted_keys(arguments.trusted_keys)
    for name in names:
        try:
            verify(find(arguments.releases, name), trusted)
            sys.stdout.write(f"ok {name}\n")
        except (ReleaseError, OSError) as error:
            failed += 1
            sys.stdout.write(f"failed {name}\n")
            sys.stderr.write(f"taugate: {error}\n")
    return 1 if failed else 0


def _promote(arguments: argparse.Namespace) -> int:
    verify(find(arguments.releases, arguments.id), trusted_keys())
    promote(arguments.releases, arguments.id)
    sys.stdout.write(f"* {arguments.id}\n")
    return 0
