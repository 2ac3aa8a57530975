"""`taugate release diff` and `taugate release correlations`: releases beside each other, in the terminal."""

import argparse
import sys

from taugate.calibration.report.compare import comparison, same_queries
from taugate.errors import InputError
from taugate.registry.catalog import find, release_ids
from taugate.registry.correlations import FEWEST_RELEASES, correlations
from taugate.retrieval.release.verify import verify


def diff(arguments: argparse.Namespace) -> int:
    """What differs from release A to release B, row by row, as the report of B would say it."""
    old, new = (verify(find(arguments.releases, name)) for name in (arguments.a, arguments.b))
    rows = [(f"{row.group}: {row.label}", *row.cells()) for row in comparison(old, new)]
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
