"""`taugate release diff` and `taugate release correlations`: releases side by side, in the terminal."""

import argparse
import sys
from typing import Any

from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.cli.terminal.options import add_action
from taugate.cli.terminal.output import printable, say
from taugate.errors import InputError
from taugate.registry.catalog import find, release_ids
from taugate.registry.correlations import MIN_RELEASES, correlations
from taugate.retrieval.release.verify import verify


def add_actions(actions: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the actions.

    Args:
        actions: The subparsers of `taugate release`.
    """
    diff = add_action(actions, "diff", show_differences, "show the differences from release A to release B")
    diff.add_argument("a", metavar="A", nargs="?", help="id of the old release (default: the current one)")
    diff.add_argument("b", metavar="B", help="id of the new release")
    add_action(
        actions,
        "correlations",
        show_correlations,
        "correlate accuracy with COE, ROE, τ and isotropy over the releases of a data set",
    )


def show_differences(arguments: argparse.Namespace) -> int:
    """Print the rows of the report of release B that differ from release A; the summaries go to stderr."""
    old, new = (verify(find(arguments.releases, name)) for name in (arguments.a, arguments.b))
    for manifest in (old, new):
        if manifest.summary is not None:
            say(f"{manifest.release_id}: {printable(manifest.summary)}")
    rows = [(f"{row.group}: {row.label}", *row.cells()) for row in compare_releases(old, new)]
    changed = [row for row in rows if row[1] != row[2]]
    widths = [max(len(row[column]) for row in changed) for column in range(4)] if changed else [0] * 4
    for label, before, after, difference in changed:
        line = f"{label:{widths[0]}}  {before:>{widths[1]}}  {after:>{widths[2]}}  {difference:>{widths[3]}}"
        sys.stdout.write(line.rstrip() + "\n")
    if not changed:
        sys.stdout.write("no difference\n")
    if not same_queries(old, new):
        say("measured on different queries or documents: the differences include changes in the data")
    return 0


def show_correlations(arguments: argparse.Namespace) -> int:
    """Print Table 3 of the thresholds paper for each data set and K that has enough releases.

    Raises:
        InputError: If no data set has enough releases.
    """
    manifests = [verify(find(arguments.releases, name)) for name in release_ids(arguments.releases)]
    groups = correlations(manifests)
    if not groups:
        raise InputError(
            f"{arguments.releases}: no data set has releases of {MIN_RELEASES} different encoders with the same K; "
            "calibrate one with more encoders (--encoder)"
        )
    for group in groups:
        adapted = f", {group.adapted} of them adapted" if group.adapted else ""
        sys.stdout.write(f"{group.data}, K = {group.k}, {group.releases} encoders{adapted}\n")
        width = max(18, *(len(f"{x} and {y}") for x, y in group.values))
        for (x, y), value in group.values.items():
            sys.stdout.write(f"  {f'{x} and {y}':{width}} {'–' if value is None else f'{value:+.3f}'}\n")
    return 0
