"""`taugate release sign`, `push` and `pull`: a release for services that read it elsewhere, and trust only some."""

import argparse
import sys

from taugate.errors import InputError
from taugate.registry.catalog import current_id, find
from taugate.registry.remote.transfer import check_remote_current, promote_remote, pull, push
from taugate.registry.signing import read_private_key, sign, trusted_keys


def signed(arguments: argparse.Namespace) -> int:
    """Put a signature beside a release that verifies."""
    key = read_private_key(arguments.key)
    signer = sign(find(arguments.releases, arguments.id), key)
    sys.stdout.write(f"signed {arguments.id} {signer}\n")
    return 0


def pushed(arguments: argparse.Namespace) -> int:
    """DIR has the rules of promotion and the history, so that what is current at the URL was current there.

    What is to be refused is, before anything is uploaded.
    """
    release = find(arguments.releases, arguments.id)
    if arguments.promote and release.name != current_id(arguments.releases):
        raise InputError(
            f"{release.name}: not the current release of {arguments.releases}; make it so with `taugate release "
            "promote` or `rollback` first, or leave out --promote"
        )
    if arguments.promote:
        check_remote_current(arguments.to, arguments.releases)
    push(release, arguments.to, trusted_keys())
    if arguments.promote:
        promote_remote(arguments.to, release.name)
    sys.stdout.write(f"{'*' if arguments.promote else ' '} {arguments.to.rstrip('/')}/{release.name}\n")
    return 0


def pulled(arguments: argparse.Namespace) -> int:
    """Before the first push there is nothing to pull, which is no fault: a calibration may come next."""
    name = pull(arguments.source, arguments.releases, arguments.id, trusted_keys())
    if name is None:
        sys.stderr.write(f"{arguments.source}: no release is current there; nothing was pulled\n")
        return 0
    sys.stdout.write(f"{'*' if name == current_id(arguments.releases) else ' '} {name}\n")
    return 0
