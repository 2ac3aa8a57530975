"""`taugate release diff`: two releases side by side, in the terminal."""

from pathlib import Path

import click

from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.cli.release.action import action, command
from taugate.cli.terminal.output import aligned, print_result, printable, say
from taugate.errors import InputError
from taugate.registry.catalog import find
from taugate.release.verify import verify


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


@command.command("correlations", hidden=True)
@click.option("--releases")
def show_correlations(releases: str | None) -> int:
    """Say what has taken the place of this command."""
    raise InputError("release correlations: now a table of `taugate compare`, with three encoders or more")
