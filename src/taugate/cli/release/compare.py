"""`taugate release diff` and `taugate release correlations`: releases side by side, in the terminal."""

from pathlib import Path

import click

from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.cli.release.action import action
from taugate.cli.terminal.output import aligned, print_result, printable, say
from taugate.errors import InputError
from taugate.registry.catalog import find, release_ids
from taugate.registry.correlations import MIN_RELEASES, correlations
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.verify import verify


@action("diff")
@click.argument(
    "names", metavar="[A] B", nargs=-1, required=True, help="ids of the releases (default of A: the current one)"
)
def show_differences(releases: Path, names: tuple[str, ...]) -> int:
    """Show the differences from release A to release B; the summaries of both go to stderr.

    Of two runs, it also says whether the new retriever and its gate are as good, and which threshold keeps as much.
    """
    if len(names) > 2:
        raise click.UsageError("give the ids of one or two releases")
    folders = [find(releases, name) for name in (None, *names)[-2:]]
    old, new = map(verify, folders)
    for manifest in (old, new):
        if manifest.summary is not None:
            for line in (f"{manifest.release_id} is {manifest.state_in_words}", *manifest.summary.splitlines()):
                say(printable(line))
    rows = [(f"{row.group}: {row.label}", *row.cells()) for row in compare_releases(old, new)]
    changed = [row for row in rows if row[1] != row[2]]
    print_result("\n".join(aligned(changed, right=(1, 2, 3))) or "no difference")
    if old.searchable is None and new.searchable is None:
        from taugate.calibration.comparison.upgrade import Upgrade  # needs scipy, which the service does without

        upgrade = Upgrade.between(*folders)
        for sentence in [] if upgrade is None else upgrade.sentences():
            print_result(sentence)
    if not same_queries(old, new):
        say("measured on different queries or documents: the differences include changes in the data")
    return 0


@action("correlations")
def show_correlations(releases: Path) -> int:
    """Correlate accuracy with COE, ROE, τ and isotropy over the releases of a data set.

    These are the correlations of Table 3 of the thresholds paper, for each K that has enough releases.
    """
    manifests = [verify(find(releases, name)) for name in release_ids(releases)]
    groups = correlations([manifest for manifest in manifests if isinstance(manifest, Manifest)])
    if not groups:
        raise InputError(
            f"{releases}: no data set has releases of {MIN_RELEASES} different encoders with the same K; "
            "calibrate one with more encoders (--encoder)"
        )
    for group in groups:
        adapted = f", {group.adapted} of them adapted" if group.adapted else ""
        print_result(f"{group.data}, K = {group.k}, {group.releases} encoders{adapted}")
        width = max(18, *(len(f"{x} and {y}") for x, y in group.values))
        for (x, y), value in group.values.items():
            print_result(f"  {f'{x} and {y}':{width}} {'–' if value is None else f'{value:+.3f}'}")
    return 0
