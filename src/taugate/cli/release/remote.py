"""`taugate release sign|push|pull`: sign a release, and copy it to and from object storage."""

import argparse
import sys
from pathlib import Path
from typing import Any

from taugate.cli.terminal.options import add_action
from taugate.cli.terminal.output import say
from taugate.errors import InputError
from taugate.registry.catalog import current_id, find
from taugate.registry.remote.transfer import check_remote_current, promote_remote, pull, push
from taugate.registry.signing import read_private_key, sign, trusted_keys


def add_actions(actions: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the actions.

    Args:
        actions: The subparsers of `taugate release`.
    """
    signing = add_action(actions, "sign", sign_release, "sign a release, if it verifies")
    signing.add_argument("--key", metavar="PEM", type=Path, required=True, help="Ed25519 private key")
    signing.add_argument("id", metavar="ID", help="release id")
    pushing = add_action(actions, "push", push_release, "copy a release to object storage")
    pushing.add_argument("--to", metavar="URL", required=True, help="such as s3://bucket/prefix")
    pushing.add_argument("--promote", action="store_true", help="also make it current there; it must be current in DIR")
    pushing.add_argument("id", metavar="ID", nargs="?", help="release id (default: the current one)")
    pulling = add_action(actions, "pull", pull_release, "copy a release from object storage to DIR")
    pulling.add_argument("--from", metavar="URL", dest="source", required=True, help="such as s3://bucket/prefix")
    pulling.add_argument(
        "id", metavar="ID", nargs="?", help="release id (default: the current one, which becomes current here too)"
    )


def sign_release(arguments: argparse.Namespace) -> int:
    """Sign a release that verifies."""
    key = read_private_key(arguments.key)
    release = find(arguments.releases, arguments.id)
    sys.stdout.write(f"signed {release.name} {sign(release, key)}\n")
    return 0


def push_release(arguments: argparse.Namespace) -> int:
    """Copy a release to object storage, and with --promote make it the current one there.

    Only the current release of DIR can be promoted there, because DIR has the promotion rules and the history.

    Raises:
        InputError: If the release cannot be promoted there; nothing is uploaded.
        ReleaseError: If the current release there cannot be replaced; nothing is uploaded.
    """
    release = find(arguments.releases, arguments.id)
    if arguments.promote and release.name != current_id(arguments.releases):
        raise InputError(
            f"{release.name}: not the current release of {arguments.releases}; make it current with `taugate "
            "release promote` or `rollback` first, or leave out --promote"
        )
    if arguments.promote:
        check_remote_current(arguments.to, arguments.releases)
    push(release, arguments.to, trusted_keys())
    if arguments.promote:
        promote_remote(arguments.to, release.name)
    sys.stdout.write(f"{'*' if arguments.promote else ' '} {arguments.to.rstrip('/')}/{release.name}\n")
    return 0


def pull_release(arguments: argparse.Namespace) -> int:
    """Copy a release from object storage.

    It is no error if no release is current there, as before the first push.
    """
    name = pull(arguments.source, arguments.releases, arguments.id, trusted_keys())
    if name is None:
        say(f"{arguments.source}: no release is current there; nothing was pulled")
        return 0
    sys.stdout.write(f"{'*' if name == current_id(arguments.releases) else ' '} {name}\n")
    return 0
