"""`taugate release sign|push|pull`: sign a release, and copy it to and from object storage."""

from pathlib import Path

import click

from taugate.cli.release.action import action, release_argument
from taugate.cli.terminal.output import print_result, say
from taugate.errors import InputError
from taugate.registry.catalog import current_id, find
from taugate.registry.remote.transfer import check_remote_current, promote_remote, pull, push
from taugate.registry.signing import read_private_key, sign, trusted_keys


@action("sign")
@click.option("--key", metavar="PEM", type=click.Path(path_type=Path), required=True, help="Ed25519 private key")
@release_argument()
def sign_release(releases: Path, key: Path, id: str) -> int:
    """Sign a release, if it verifies."""
    private_key = read_private_key(key)
    release = find(releases, id)
    print_result(f"signed {release.name} {sign(release, private_key)}")
    return 0


@action("push")
@click.option("--to", metavar="URL", required=True, help="such as s3://bucket/prefix")
@click.option("--promote", is_flag=True, help="also make it current there; it must be current in DIR")
@release_argument("the current one")
def push_release(releases: Path, to: str, promote: bool, id: str | None) -> int:
    """Copy a release to object storage.

    Only the current release of DIR can be promoted there, because DIR has the promotion rules and the history.
    """
    release = find(releases, id)
    if promote and release.name != current_id(releases):
        raise InputError(
            f"{release.name}: not the current release of {releases}; make it current with `taugate "
            "release promote` or `rollback` first, or leave out --promote"
        )
    if promote:
        check_remote_current(to, releases)
    push(release, to, trusted_keys())
    if promote:
        promote_remote(to, release.name)
    print_result(f"{'*' if promote else ' '} {to.rstrip('/')}/{release.name}")
    return 0


@action("pull")
@click.option("--from", "source", metavar="URL", required=True, help="such as s3://bucket/prefix")
@release_argument("the current one, which becomes current here too")
def pull_release(releases: Path, source: str, id: str | None) -> int:
    """Copy a release from object storage to DIR.

    It is no error if no release is current there, as before the first push.
    """
    name = pull(source, releases, id, trusted_keys())
    if name is None:
        say(f"{source}: no release is current there; nothing was pulled")
        return 0
    print_result(f"{'*' if name == current_id(releases) else ' '} {name}")
    return 0
