"""`taugate release list|show|verify|history`: which releases there are, what is in them, and their history."""

import argparse
import sys
from pathlib import Path
from typing import Any

from taugate.cli.terminal.options import add_action
from taugate.cli.terminal.output import printable, say
from taugate.errors import ReleaseError
from taugate.registry import history
from taugate.registry.catalog import calibration_state, current_id, find, pointed_id, release_ids
from taugate.registry.signing import trusted_keys
from taugate.retrieval.release.layout import CURRENT, HISTORY, MANIFEST, SHADOW
from taugate.retrieval.release.verify import verify


def add_actions(actions: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the actions.

    actions: the subparsers of `taugate release`.
    """
    add_action(
        actions,
        "list",
        list_releases,
        "ids, oldest first; * marks the current one, ~ the shadow; provisional ones are marked as such",
    )
    show = add_action(actions, "show", show_manifest, "the manifest, as stored")
    show.add_argument("id", metavar="ID", nargs="?", help="release id; default the current one")
    check = add_action(actions, "verify", verify_releases, "check every digest; without ID, of all releases")
    check.add_argument("id", metavar="ID", nargs="?", help="release id; default all")
    check.add_argument("--trusted-keys", metavar="PATH", type=Path, help="who must have signed it, PEM")
    add_action(actions, "history", show_history, "who made which release current, or removed it, and when")


def list_releases(arguments: argparse.Namespace) -> int:
    """Print the ids, oldest first: * marks the current one, ~ the shadow, and a provisional one has the word behind."""
    names = release_ids(arguments.releases)
    try:
        current = current_id(arguments.releases)
    except ReleaseError as error:
        current = None
        say(f"taugate: {error}")
    marks = {pointed_id(arguments.releases, SHADOW): "~", current: "*"}
    for name in names:
        state = "  provisional" if calibration_state(arguments.releases, name) == "provisional" else ""
        sys.stdout.write(f"{marks.get(name, ' ')} {name}{state}\n")
    return 0


def show_manifest(arguments: argparse.Namespace) -> int:
    """Print the manifest as it is stored; say on stderr where the release is provisional."""
    release = find(arguments.releases, arguments.id)
    if calibration_state(arguments.releases, release.name) == "provisional":
        say(f"{release.name} is provisional: calibration.reasons says why")
    sys.stdout.buffer.write((release / MANIFEST).read_bytes())
    return 0


def verify_releases(arguments: argparse.Namespace) -> int:
    """Check one release or all of them. Every one is checked, also after a failure; any failure is exit code 1."""
    names = [arguments.id] if arguments.id else release_ids(arguments.releases)
    failed, trusted = 0, trusted_keys(arguments.trusted_keys)
    for name in names:
        try:
            verify(find(arguments.releases, name), trusted)
            sys.stdout.write(f"ok {name}\n")
        except (ReleaseError, OSError) as error:
            failed += 1
            sys.stdout.write(f"failed {name}\n")
            say(f"taugate: {error}")
    return 1 if failed else 0


def show_history(arguments: argparse.Namespace) -> int:
    """Print what was done with the releases, oldest first, and on stderr which lines of the log are cut short."""
    releases = arguments.releases
    there = set(release_ids(releases))
    found = history.read(releases)
    done = history.took_effect(found.events, {pointer: pointed_id(releases, pointer) for pointer in (CURRENT, SHADOW)})
    for event, moved in zip(found.events, done, strict=True):
        interrupted = not moved or (event.action == "prune" and event.release in there)
        sys.stdout.write(_event_line(event, interrupted=interrupted) + "\n")
    if found.unreadable:
        numbers = ", ".join(map(str, found.unreadable))
        say(f"taugate: {releases / HISTORY}: line {numbers} was cut short, and nothing was changed by it")
    return 0


def _event_line(event: history.Event, *, interrupted: bool) -> str:
    """Format an event of the history as one line."""
    words = [event.at, f"{event.action:8}", event.release or "none", f"by {event.by}"]
    if event.previous is not None:
        words.append(f"was {event.previous}")
    if event.forced:
        words.append(f"forced: {', '.join(event.forced)}")
    if event.rule is not None:
        words.append(f"as {event.rule}")
    if interrupted:
        words.append("interrupted, without effect")
    return printable("  ".join(words))
