"""`taugate release diff` and `taugate release correlations`: releases beside each other, in the terminal."""

import argparse
import sys

from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.errors import InputError, ReleaseError
from taugate.registry import catalog as outline
from taugate.registry import history
from taugate.registry.catalog import current_id, find, pointed_id, release_ids
from taugate.registry.correlations import FEWEST_RELEASES, correlations
from taugate.registry.signing import trusted_keys
from taugate.retrieval.release.layout import CURRENT, HISTORY, MANIFEST, SHADOW
from taugate.retrieval.release.verify import verify


def ids(arguments: argparse.Namespace) -> int:
    """Ids, oldest first; * marks the current one, ~ the shadow; a provisional one is called so behind its id."""
    names = release_ids(arguments.releases)
    try:
        current = current_id(arguments.releases)
    except ReleaseError as error:
        current = None
        sys.stderr.write(f"taugate: {error}\n")
    marks = {pointed_id(arguments.releases, SHADOW): "~", current: "*"}
    for name in names:
        state = "  provisional" if outline.state(arguments.releases, name) == "provisional" else ""
        sys.stdout.write(f"{marks.get(name, ' ')} {name}{state}\n")
    return 0


def manifest(arguments: argparse.Namespace) -> int:
    """The manifest, as stored; of a provisional release stderr says so."""
    release = find(arguments.releases, arguments.id)
    if outline.state(arguments.releases, release.name) == "provisional":
        sys.stderr.write(f"{release.name} is provisional: calibration.reasons says why\n")
    sys.stdout.buffer.write((release / MANIFEST).read_bytes())
    return 0


def verified(arguments: argparse.Namespace) -> int:
    """Every release is looked at, also after one that fails; the first failure decides the exit code."""
    names = [arguments.id] if arguments.id else release_ids(arguments.releases)
    failed, trusted = 0, trusted_keys(arguments.trusted_keys)
    for name in names:
        try:
            verify(find(arguments.releases, name), trusted)
            sys.stdout.write(f"ok {name}\n")
        except (ReleaseError, OSError) as error:
            failed += 1
            sys.stdout.write(f"failed {name}\n")
            sys.stderr.write(f"taugate: {error}\n")
    return 1 if failed else 0


def recorded(arguments: argparse.Namespace) -> int:
    """What was done, oldest first."""
    releases = arguments.releases
    there = set(release_ids(releases))
    found = history.read(releases)
    done = history.took_effect(found.events, {pointer: pointed_id(releases, pointer) for pointer in (CURRENT, SHADOW)})
    for event, moved in zip(found.events, done, strict=True):
        interrupted = not moved or (event.action == "prune" and event.release in there)
        sys.stdout.write(_line(event, interrupted=interrupted) + "\n")
    if found.unreadable:
        numbers = ", ".join(map(str, found.unreadable))
        sys.stderr.write(
            f"taugate: {releases / HISTORY}: line {numbers} was cut short, and nothing was changed by it\n"
        )
    return 0


def _line(event: history.Event, *, interrupted: bool) -> str:
    words = [event.at, f"{event.action:8}", event.release or "none", f"by {event.by}"]
    if event.previous is not None:
        words.append(f"was {event.previous}")
    if event.forced:
        words.append(f"forced: {', '.join(event.forced)}")
    if event.rule is not None:
        words.append(f"as {event.rule}")
    if interrupted:
        words.append("interrupted, without effect")
    line = "  ".join(words)
    return "".join(letter if letter.isprintable() else "?" for letter in line)  # a terminal obeys what is not


def diff(arguments: argparse.Namespace) -> int:
    """What differs from release A to release B, row by row, as the report of B would say it."""
    old, new = (verify(find(arguments.releases, name)) for name in (arguments.a, arguments.b))
    rows = [(f"{row.group}: {row.label}", *row.cells()) for row in compare_releases(old, new)]
    changed = [row for row in rows if row[1] != row[2]]
    widths = [max(len(row[column]) for row in changed) for column in range(4)] if changed else [0] * 4
    for label, before, after, difference in changed:
        line = f"{label:{widths[0]}}  {before:>{widths[1]}}  {after:>{widths[2]}}  {difference:>{widths[3]}}"
        sys.stdout.write(line.rstrip() + "\n")
    if not changed:
        sys.stdout.write("no difference\n")
    if not same_queries(old, new):
        sys.stderr.write("measured on other queries or documents: the differences hold what changed in the data, too\n")
    return 0


def table(arguments: argparse.Namespace) -> int:
    """The papers' Table 3 for each data set and K with enough releases. Raises InputError where there is none."""
    manifests = [verify(find(arguments.releases, name)) for name in release_ids(arguments.releases)]
    found = correlations(manifests)
    if not found:
        raise InputError(
            f"{arguments.releases}: no data set has releases of {FEWEST_RELEASES} different encoders with the same K; "
            "calibrate it with more of them (--encoder)"
        )
    for group in found:
        sys.stdout.write(f"{group.data}, K = {group.k}, {group.releases} encoders\n")
        for (x, y), value in group.values.items():
            sys.stdout.write(f"  {f'{x} and {y}':18} {'–' if value is None else f'{value:+.3f}'}\n")
    return 0
