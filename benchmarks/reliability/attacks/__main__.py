"""Attack a checkout and print a table: `python -m benchmarks.reliability.attacks [NAME…] [--root DIR] [--before DIR]`."""

import argparse
import http.client
import sys
import time
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.reliability.attacks import (
    bodies,
    files,
    framing,
    hostile_redis,
    memory,
    replies,
    small_machine,
    unauthenticated,
)
from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting, prepared

ATTACKS = {
    "trailers": framing.trailers,
    "key-in-trailer": framing.key_in_trailer,
    "upgrades": framing.upgrades,
    "smuggling": framing.smuggling,
    "other-host": framing.other_host,
    "distinct": memory.distinct,
    "places": unauthenticated.all_connections,
    "openapi": unauthenticated.openapi,
    "refusals-log": unauthenticated.refusals_log,
    "unknown-fields": bodies.unknown_fields,
    "stalled-bodies": bodies.stalled,
    "unread-replies": replies.unread,
    "unread-log": replies.unread_log,
    "small-machine": small_machine.two_workers,
    "forged-replies": hostile_redis.forged,
    "huge-counters": hostile_redis.counters,
    "huge-redis-replies": hostile_redis.huge_replies,
    "fifo": files.fifo,
    "file-names": files.file_names,
    "keys-at-once": files.keys_at_once,
    "prunes-at-once": files.prunes_at_once,
    "judgements": files.judgements,
}


def main() -> None:
    """Run the attacks one after the other; exit with status 1 if the service fell to one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ATTACKS)}; all by default")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[3], help="checkout to attack")
    parser.add_argument("--before", type=Path, help="checkout to attack first, for a table of both")
    parser.add_argument("--releases", type=Path, help="releases directory (default: one of the sample data set)")
    parser.add_argument("--size", type=int, default=100_000, help="distinct queries that `distinct` asks")
    arguments = parser.parse_args()
    if unknown := {*arguments.names} - {*ATTACKS}:
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    roots = [each for each in (arguments.before, arguments.root) if each is not None]
    found = [_attacked(root, arguments) for root in roots]
    header = ["attack", "limit", *(["before", "", "after", ""] if arguments.before else ["measured", ""])]
    cells = [
        [rows[-1].attack, rows[-1].limit, *(cell for row in rows for cell in (row.measured, _verdict(row)))]
        for rows in zip(*found, strict=True)
    ]
    print(table(header, cells))
    sys.exit(0 if all(row.held for row in found[-1]) else 1)


def _attacked(root: Path, arguments: argparse.Namespace) -> list[AttackResult]:
    with prepared(root, arguments.size, arguments.releases) as setting:
        return [_row(name, setting) for name in arguments.names or ATTACKS]


def _verdict(row: AttackResult) -> str:
    return "held" if row.held else "**fell**"


def _row(name: str, setting: AttackSetting) -> AttackResult:
    """Run one attack; a service that no longer answers fell."""
    began = time.monotonic()
    try:
        row = ATTACKS[name](setting)
    except (OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
        row = AttackResult(name, f"no result: {str(error).splitlines()[0][:200]}", "an answer", held=False)
    print(f"{name}: {'held' if row.held else 'fell'}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    main()
