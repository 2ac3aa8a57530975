"""`taugate log`: checks a chained query log."""

from pathlib import Path

import click

from taugate.cli.terminal.command import Group
from taugate.cli.terminal.output import print_result, say
from taugate.drift.chain import verify_log
from taugate.errors import LogChanged
from taugate.release.verify import TrustedKeys

command = Group("log", help="Check a chained query log (TAUGATE_QUERY_LOG_CHAIN).")


@command.command("verify")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--trusted-keys", metavar="PATH", type=click.Path(path_type=Path), help="public keys (PEM) of its roots")
@click.option("--root", metavar="DIGEST", help="a root noted earlier, which the log must have")
def verify_files(files: tuple[Path, ...], trusted_keys: Path | None, root: str | None) -> int:
    """Check that no line is missing, changed or moved. Of a rotated log, name the older file first.

    Lines after the last root may have been cut off: note its digest, and give it as --root later.
    """
    try:
        log = verify_log(files, None if trusted_keys is None else TrustedKeys.load(trusted_keys))
        if root is not None and root not in log.roots:
            raise LogChanged(f"{files[-1]}: has no root {root}; its last lines are missing")
    except LogChanged as error:
        print_result("failed")
        say(f"taugate: {error}")
        return 1
    print_result(f"ok: {log.lines:,} lines, {len(log.roots):,} roots, the last {log.roots[-1]}")
    if trusted_keys is None:
        say("signatures were not checked: name the public key of the log with --trusted-keys")
    if log.unsealed:
        say(f"{log.unsealed:,} lines follow the last root; whether more did is not known before the next one")
    if log.cut:
        say(f"{log.cut:,} lines were cut off by a kill")
    return 0
