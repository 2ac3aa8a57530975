"""`taugate key`: create an API key, which is shown once, with its entry for the service, or remove keys."""

import argparse
import secrets
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import orjson

from taugate.errors import InputError
from taugate.service.access.keys import KeyScope, check_keys, digest, parse_keys
from taugate.storage.files import atomic_write
from taugate.storage.locks import exclusive_lock

Entries = list[dict[str, Any]]  # of the file of keys, as JSON has them

_BYTES = 32
_LOCK_SECONDS = 30  # as for a change of releases; changing a file of keys takes milliseconds
_PREFIX = "taugate_"  # lets secret scanners find a key in a repository or a log


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `taugate key` to its parser."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "Prints a new key on stdout, once: only its hash is kept. Without --file, its entry goes to stderr."
    new: argparse.ArgumentParser = actions.add_parser("new", help="make a key", description=text)
    new.add_argument("--name", required=True, help="name of the key in logs and metrics")
    new.add_argument("--scopes", required=True, metavar="LIST", help=f"some of {','.join(get_args(KeyScope))}")
    new.add_argument(
        "--queries-per-second", type=float, metavar="N", help="rate limit of the key (default: that of the service)"
    )
    new.add_argument(
        "--filter",
        metavar="JSON",
        help='filter on the documents that it may see, such as {"tenant": "a"} (default: all)',
    )
    new.add_argument("--days", type=float, metavar="N", help="days until it expires (default: never)")
    new.add_argument("--file", type=Path, help="file of keys to add the entry to; created if missing")
    new.set_defaults(run=_new)
    text = "Removes keys from the file. A running service rejects them within seconds."
    remove: argparse.ArgumentParser = actions.add_parser("remove", help="remove keys from a file", description=text)
    remove.add_argument("names", nargs="+", metavar="NAME", help="name of the key in logs and metrics")
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
        sys.stderr.write(f"Add this entry to the list in TAUGATE_KEYS_FILE:\n{orjson.dumps(entry).decode()}\n")
    else:
        _change_file(arguments.file, lambda entries: [*entries, entry])
        sys.stderr.write(f"Added to {arguments.file}; a running service accepts the key within seconds.\n")
    sys.stdout.write(f"{key}\n")
    return 0


def _parse_filter(text: str) -> Any:  # noqa: ANN401 (any JSON)
    """Parse the JSON of --filter; whether it is a filter is checked with the entry."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"""--filter: {error}; write an object, as in '{{"tenant": "a"}}'""") from error


def _expiry(days: float) -> str:
    """Return the time that many days from now, as ISO 8601 with seconds."""
    try:
        return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    except (OverflowError, ValueError) as error:
        raise InputError(f"--days {days}: too far in the future; give fewer days") from error


def _check(entries: list[dict[str, Any]], source: str) -> None:
    """Raise InputError, which names the source, if the service would reject an entry."""
    check_keys(parse_keys(orjson.dumps(entries), source), source)


def _remove(arguments: argparse.Namespace) -> int:
    """Remove the entries of the named keys from the file, all of them or none."""

    def without(entries: Entries) -> Entries:
        names = [entry["name"] for entry in entries]
        if unknown := [name for name in arguments.names if name not in names]:
            raise InputError(
                f"{arguments.file}: no key is named {unknown[0]}; the file has {', '.join(names) or 'none'}"
            )
        return [entry for entry in entries if entry["name"] not in arguments.names]

    _change_file(arguments.file, without)
    removed = ", ".join(arguments.names)
    sys.stderr.write(f"Removed {removed} from {arguments.file}; a running service rejects them within seconds.\n")
    return 0


def _change_file(path: Path, change: Callable[[Entries], Entries]) -> None:
    """Change the file of keys under a lock: two commands at once would undo each other's changes."""

    def busy(holder: str) -> InputError:
        return InputError(f"{path}: {holder} has been changing it for {_LOCK_SECONDS} s; end it, and try again")

    with exclusive_lock(path.with_name(f".{path.name}.lock"), _LOCK_SECONDS, busy, temporary=True):
        _replace_file(path, change)


def _replace_file(path: Path, change: Callable[[Entries], Entries]) -> None:
    """Replace the file atomically: a service reads the old or the new one. Only its owner can read a new file."""
    entries: Entries = []
    if path.exists():
        parse_keys(path.read_bytes(), str(path))
        entries = orjson.loads(path.read_bytes())
    changed = change(entries)
    _check(changed, str(path))
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600  # the service may run as another user
    atomic_write(path, orjson.dumps(changed, option=orjson.OPT_INDENT_2) + b"\n", mode=mode)
