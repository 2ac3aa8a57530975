"""`taugate key new`: make an API key, which is shown once, and the entry that lets it in."""

import argparse
import secrets
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import orjson

from taugate.errors import InputError
from taugate.service.access.keys import KeyScope, digest, keys_from_entries, parse_entries
from taugate.storage.files import atomic_write
from taugate.storage.locks import exclusive_lock

_BYTES = 32
_OTHERS_SECONDS = 30  # as for a change of releases: adding a key takes milliseconds
_PREFIX = "taugate_"  # so that a key which ends up in a repository or a log is found by those who look for such


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `key` and its action."""
    actions = commands.add_parser("key", help="make API keys").add_subparsers(required=True, metavar="ACTION")
    text = "Prints a new key on stdout, once: only its hash is kept. The entry for the file of keys goes to stderr."
    new: argparse.ArgumentParser = actions.add_parser("new", help="make a key", description=text)
    new.add_argument("--name", required=True, help="how logs and metrics call it")
    new.add_argument("--scopes", required=True, metavar="LIST", help=f"some of {','.join(get_args(KeyScope))}")
    new.add_argument("--queries-per-second", type=float, metavar="N", help="its rate (default: that of the service)")
    new.add_argument("--filter", metavar="JSON", help='documents it may see, as in {"tenant": "a"} (default: all)')
    new.add_argument("--days", type=float, metavar="N", help="until it expires (default: never)")
    new.add_argument("--file", type=Path, help="file of keys to add the entry to; made where there is none")
    new.set_defaults(run=_new)


def _new(arguments: argparse.Namespace) -> int:
    key = _PREFIX + secrets.token_urlsafe(_BYTES)
    entry: dict[str, Any] = {
        "name": arguments.name,
        "sha256": digest(key.encode()).hex(),
        "scopes": [scope.strip() for scope in arguments.scopes.split(",") if scope.strip()],
    }
    if arguments.queries_per_second is not None:
        entry["queries_per_second"] = arguments.queries_per_second
    if arguments.filter is not None:
        entry["filter"] = _json(arguments.filter)
    if arguments.days is not None:
        entry["expires"] = _in(arguments.days)
    _check([entry], "the new key")
    if arguments.file is None:
        sys.stderr.write(f"Put this into the list of TAUGATE_KEYS_FILE:\n{orjson.dumps(entry).decode()}\n")
    else:
        _add(entry, arguments.file)
        sys.stderr.write(f"Added to {arguments.file}; a service that reads it lets the key in within seconds.\n")
    sys.stdout.write(f"{key}\n")
    return 0


def _json(text: str) -> Any:  # noqa: ANN401 (whatever JSON can be)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"""--filter: {error}; write an object, as in '{{"tenant": "a"}}'""") from error


def _in(days: float) -> str:
    try:
        return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    except (OverflowError, ValueError) as error:
        raise InputError(f"--days {days}: there is no such day; give fewer") from error


def _check(entries: list[dict[str, Any]], where: str) -> None:
    keys_from_entries(parse_entries(orjson.dumps(entries), where), where)


def _add(entry: dict[str, Any], path: Path) -> None:
    """The file is replaced as a whole, so that a service sees the old or the new, and no other user may read it.

    One command at a time: what two have read, each would write back without the other's key.
    """
    lock = path.with_name(f".{path.name}.lock")
    with exclusive_lock(lock, _OTHERS_SECONDS) as holder:
        if holder is not None:
            raise InputError(f"{path}: {holder} has been adding a key for {_OTHERS_SECONDS} s; end it, and try again")
        try:
            _replace(entry, path)
        finally:
            lock.unlink(missing_ok=True)  # by its holder, so that nobody's lock is taken away


def _replace(entry: dict[str, Any], path: Path) -> None:
    entries: list[dict[str, Any]] = []
    if path.exists():
        parse_entries(path.read_bytes(), str(path))
        entries = orjson.loads(path.read_bytes())
    _check([*entries, entry], str(path))
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600  # a service may run as somebody else
    atomic_write(path, orjson.dumps([*entries, entry], option=orjson.OPT_INDENT_2) + b"\n", mode=mode)
