"""`taugate release push`: a release to object storage, for services that read it there."""

import argparse
import sys
from pathlib import Path
from typing import Any

from calibration.signing_command import trusted_keys
from retrieval.errors import InputError
from retrieval.release.catalog import current_id, find
from retrieval.release.push import promote_there, push


def add_parser(actions: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the action `push` of `taugate release`."""
    text = "copy a release to object storage"
    action: argparse.ArgumentParser = actions.add_parser("push", help=text, description=text)
    action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
    action.add_argument("--to", metavar="URL", required=True, help="such as s3://bucket/prefix")
    action.add_argument("--promote", action="store_true", help="make it the current one there, as it is in DIR")
    action.add_argument("id", metavar="ID", nargs="?", help="release id; default the current one")
    action.set_defaults(run=_push)


def _push(arguments: argparse.Namespace) -> int:
    """DIR has the rules of promotion and the history, so that what is current at the URL was current there."""
    release = find(arguments.releases, arguments.id)
    if arguments.promote and release.name != current_id(arguments.releases):
        raise InputError(
            f"{release.name}: not the current release of {arguments.releases}; make it so with `taugate release "
            "promote` or `rollback` first, or leave out --promote"
        )
    push(release, arguments.to, trusted_keys())
    if arguments.promote:
        promote_there(arguments.to, release.name)
    sys.stdout.write(f"{'*' if arguments.promote else ' '} {arguments.to.rstrip('/')}/{release.name}\n")
    return 0
