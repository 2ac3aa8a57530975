"""`taugate key`: create an API key, which is shown once, with its entry for the service; list or remove keys."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import click
import orjson

from taugate.cli.terminal.command import Group
from taugate.cli.terminal.output import aligned, print_result, say
from taugate.errors import InputError
from taugate.service.access.authorization import KeyScope, check_keys, digest, parse_keys
from taugate.storage.files import Json, atomic_write
from taugate.storage.folders import exclusive_lock

Entries = list[dict[str, Json]]  # of the file of keys, as JSON has them

_BYTES = 32
_LOCK_SECONDS = 30  # as for a change of releases; changing a file of keys takes milliseconds
_PREFIX = "taugate_"  # lets secret scanners find a key in a repository or a log


def _parse_filter(_: click.Context, __: click.Parameter, text: str | None) -> Any:  # noqa: ANN401 (any JSON)
    """Parse the JSON of --filter; whether it is a filter is checked with the entry."""
    try:
        return None if text is None else orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"""--filter: {error}; write an object, as in '{{"tenant": "a"}}'""") from error


def _expiry(days: float) -> str:
    """Return the time that many days from now, as ISO 8601 with seconds."""
    try:
        return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    except (OverflowError, ValueError) as error:
        raise InputError(f"--days {days}: too far in the future; give fewer days") from error


command = Group("key", help="Create, list and remove API keys.")


@command.command("new")
@click.option("--name", required=True, metavar="NAME", help="name of the key in logs and metrics")
@click.option("--scopes", required=True, metavar="LIST", help=f"some of {','.join(get_args(KeyScope))}")
@click.option(
    "--queries-per-second", type=float, metavar="N", help="rate limit of the key (default: that of the service)"
)
@click.option(
    "--filter",
    "restriction",
    metavar="JSON",
    callback=_parse_filter,
    help='filter on the documents that it may see, such as {"tenant": "a"} (default: all)',
)
@click.option("--days", type=float, metavar="N", help="days until it expires (default: never)")
@click.option("--file", type=click.Path(path_type=Path), help="file of keys to add the entry to; created if missing")
def new(
    name: str,
    scopes: str,
    queries_per_second: float | None,
    restriction: Any,  # noqa: ANN401 (any JSON)
    days: float | None,
    file: Path | None,
) -> int:
    """Make a key. It is printed on stdout, once: only its hash is kept. Without --file, its entry goes to stderr."""
    key = _PREFIX + secrets.token_urlsafe(_BYTES)
    fields = {
        "name": name,
        "sha256": digest(key.encode()).hex(),
        "scopes": [scope.strip() for scope in scopes.split(",") if scope.strip()],
        "queries_per_second": queries_per_second,
        "filter": restriction,
        "expires": None if days is None else _expiry(days),
    }
    entry = {field: value for field, value in fields.items() if value is not None}
    _check([entry], "the new key")
    if file is None:
        print_result(key)
        say(f"Add this entry to the list in TAUGATE_KEYS_FILE:\n{orjson.dumps(entry).decode()}")
    else:
        _change_file(file, lambda entries: [*entries, entry], lambda: print_result(key))
        say(f"Added to {file}; a running service accepts the key within seconds.")
    return 0


@command.command("list")
@click.option("--file", type=click.Path(path_type=Path), required=True, help="file of keys")
def list_keys(file: Path) -> int:
    """List the keys of a file with their scopes and when they expire. Not even their hashes are shown."""
    if not file.is_file():
        raise InputError(f"{file}: no such file; `taugate key new --file {file}` creates it")
    keys, now = parse_keys(file.read_bytes(), str(file)), datetime.now(UTC)
    rows = [("name", "scopes", "expires")]
    for key in keys:
        expires = "never" if key.expires is None else f"{key.expires:%Y-%m-%d %H:%M %Z}"
        expired = key.expires is not None and key.expires <= now
        rows.append((key.name, ",".join(key.scopes), f"{expires}, expired" if expired else expires))
    header, *lines = aligned(rows)
    say(header)
    for line in lines:
        print_result(line)
    return 0


@command.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", help="name of the key in logs and metrics")
@click.option("--file", type=click.Path(path_type=Path), required=True, help="file of keys")
def remove(names: tuple[str, ...], file: Path) -> int:
    """Remove keys from a file, all of them or none. A running service rejects them within seconds."""

    def without(entries: Entries) -> Entries:
        existing = [str(entry["name"]) for entry in entries]
        if unknown := [name for name in names if name not in existing]:
            raise InputError(f"{file}: no key is named {unknown[0]}; the file has {', '.join(existing) or 'none'}")
        return [entry for entry in entries if entry["name"] not in names]

    _change_file(file, without)
    say(f"Removed {', '.join(names)} from {file}; a running service rejects them within seconds.")
    return 0


def _check(entries: Entries, source: str) -> None:
    """Raise InputError, which names the source, if the service would reject an entry."""
    check_keys(parse_keys(orjson.dumps(entries), source), source)


def _change_file(path: Path, change: Callable[[Entries], Entries], show: Callable[[], object] = lambda: None) -> None:
    """Change the file of keys under a lock: two commands at once would undo each other's changes.

    Args:
        show: Called before the file is replaced: a key that could not be printed must not be accepted.
    """

    def busy(holder: str) -> InputError:
        return InputError(f"{path}: {holder} has been changing it for {_LOCK_SECONDS} s; end it, and try again")

    with exclusive_lock(path.with_name(f".{path.name}.lock"), _LOCK_SECONDS, busy, temporary=True):
        _replace_file(path, change, show)


def _replace_file(path: Path, change: Callable[[Entries], Entries], show: Callable[[], object]) -> None:
    """Replace the file atomically: a service reads the old or the new one. Only its owner can read a new file."""
    entries: Entries = []
    if path.exists():
        parse_keys(path.read_bytes(), str(path))
        entries = orjson.loads(path.read_bytes())
    changed = change(entries)
    _check(changed, str(path))
    show()
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600  # the service may run as another user
    atomic_write(path, orjson.dumps(changed, option=orjson.OPT_INDENT_2) + b"\n", mode=mode)
