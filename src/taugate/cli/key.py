"""`taugate key`: make an API key, which is shown once, with its entry for the service; remove one."""

import argparse
import secrets
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import orjson

from taugate.errors import InputError
from taugate.service.access.keys import KeyScope, digest, keys_from_entries, parse_entries
from taugate.storage.files import atomic_write
from taugate.storage.locks import exclusive_lock

Entries = list[dict[str, Any]]  # of the file of keys, as JSON has them

_BYTES = 32
_LOCK_SECONDS = 30  # as for a change of releases: changing a file of keys takes milliseconds
_PREFIX = "taugate_"  # so that a key which ends up in a repository or a log is found by those who look for such


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `taugate key` to its parser."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "Prints a new key on stdout, once: only its hash is kept. Without --file, its entry goes to stderr."
    new: argparse.ArgumentParser = actions.add_parser("new", help="make a key", description=text)
    new.add_argument("--name", required=True, help="how logs and metrics call it")
    new.add_argument("--scopes", required=True, metavar="LIST", help=f"some of {','.join(get_args(KeyScope))}")
    new.add_argument("--queries-per-second", type=float, metavar="N", help="its rate (default: that of the service)")
    new.add_argument("--filter", metavar="JSON", help='documents it may see, as in {"tenant": "a"} (default: all)')
    new.add_argument("--days", type=float, metavar="N", help="until it expires (default: never)")
    new.add_argument("--file", type=Path, help="file of keys to add the entry to; made where there is none")
    new.set_defaults(run=_new)
    text = "Removes keys from the file. A service that reads it refuses them within seconds."
    remove: argparse.ArgumentParser = actions.add_parser("remove", help="remove keys from a file", description=text)
    remove.add_argument("names", nargs="+", metavar="NAME", help="how logs and metrics call it")
    remove.add_argument("--file", type=Path, required=True, help="file of keys")
    remove.set_defaults(run=_remove)


def _new(arguments: argparse.Namespace) -> int:
    """Make a key and its entry, check the entry, and print both or add the entry to the file."""
    key = _PREFIX + secrets.token_urlsafe(_BYTES)
    entry: dict[str, Any] = {
        "name": arguments.name,
        "sha256": digest(key.encode()).hex(),
        "scopes": [scope.strip() for scope in arguments.scopes.split(",") if scope.strip()],
    }
    if arguments.queries_per_second is not None:
        entry["queries_per_second"] = arguments.queries_per_second
    if arguments.filter is not None:
        entry["filter"] = _parse_filter(arguments.filter)
    if arguments.days is not None:
        entry["expires"] = _expiry(arguments.days)
    _check([entry], "the new key")
    if arguments.file is None:
        sys.stderr.write(f"Put this into the list of TAUGATE_KEYS_FILE:\n{orjson.dumps(entry).decode()}\n")
    else:
        _change_file(arguments.file, lambda entries: [*entries, entry])
        sys.stderr.write(f"Added to {arguments.file}; a service that reads it lets the key in within seconds.\n")
    sys.stdout.write(f"{key}\n")
    return 0


def _parse_filter(text: str) -> Any:  # noqa: ANN401 (whatever JSON can be)
    """Parse the JSON of --filter; whether it is a filter is checked with the entry."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"""--filter: {error}; write an object, as in '{{"tenant": "a"}}'""") from error


def _expiry(days: float) -> str:
    """The time so many days from now, as ISO 8601 with seconds."""
    try:
        return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    except (OverflowError, ValueError) as error:
        raise InputError(f"--days {days}: there is no such day; give fewer") from error


def _check(entries: list[dict[str, Any]], where: str) -> None:
    """Raise InputError, which names where, for entries that the service would refuse."""
    keys_from_entries(parse_entries(orjson.dumps(entries), where), where)


def _remove(arguments: argparse.Namespace) -> int:
    """Remove the entries of the named keys from the file, all of them or none."""

    def without(entries: Entries) -> Entries:
        known = [entry["name"] for entry in entries]
        if unknown := [name for name in arguments.names if name not in known]:
            raise InputError(f"{arguments.file}: has no key {unknown[0]}; it has {', '.join(known) or 'none'}")
        return [entry for entry in entries if entry["name"] not in arguments.names]

    _change_file(arguments.file, without)
    removed = ", ".join(arguments.names)
    sys.stderr.write(f"Removed {removed} from {arguments.file}; a service that reads it refuses them within seconds.\n")
    return 0


def _change_file(path: Path, change: Callable[[Entries], Entries]) -> None:
    """Change the file of keys, one command at a time: of two at once, one would undo what the other has done."""
    lock = path.with_name(f".{path.name}.lock")
    with exclusive_lock(lock, _LOCK_SECONDS) as holder:
        if holder is not None:
            raise InputError(f"{path}: {holder} has been changing it for {_LOCK_SECONDS} s; end it, and try again")
        try:
            _replace_file(path, change)
        finally:
            lock.unlink(missing_ok=True)  # by its holder, so that nobody's lock is taken away


def _replace_file(path: Path, change: Callable[[Entries], Entries]) -> None:
    """Replace the file as a whole: a service reads the old one or the new one, and no other user can read a new one."""
    entries: Entries = []
    if path.exists():
        parse_entries(path.read_bytes(), str(path))
        entries = orjson.loads(path.read_bytes())
    changed = change(entries)
    _check(changed, str(path))
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600  # a service may run as somebody else
    atomic_write(path, orjson.dumps(changed, option=orjson.OPT_INDENT_2) + b"\n", mode=mode)
