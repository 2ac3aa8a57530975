"""`taugate release erase`: make a release without some documents, or search for their remains."""

from pathlib import Path

import click

from taugate.cli.release.action import action
from taugate.cli.terminal.output import print_result, printable, say
from taugate.errors import InputError
from taugate.registry.catalog import find
from taugate.registry.remnants import find_remnants
from taugate.registry.signing import trusted_keys
from taugate.retrieval.release.layout import SIGNATURE


@action("erase")
@click.argument(
    "names",
    metavar="ID DOCUMENT...",
    nargs=-1,
    required=True,
    help="release id, and ids of documents as in the corpus; with --check, ids of documents",
)
@click.option("--check", is_flag=True, help="search all files of DIR; exit code 1 if anything is found")
@click.option("--text", "texts", metavar="TEXT", multiple=True, help="words of a document to search for")
@click.option(
    "--also",
    metavar="PATH",
    type=click.Path(path_type=Path),
    multiple=True,
    help="another file or folder to search, such as a query log",
)
def erase(releases: Path, names: tuple[str, ...], check: bool, texts: tuple[str, ...], also: tuple[Path, ...]) -> int:
    """Make a release without some documents; --check: search for their remains."""
    if check:
        left = find_remnants([releases, *also], [*names], [*texts])
        for line in left.matches:
            print_result(f"{printable(line)}")
        say(f"{'found' if left.matches else 'found no'} text of the erased documents in {left.files:,} files searched")
        return 1 if left.matches else 0
    if texts or also:
        raise InputError("--text and --also: only valid with --check; add --check, and leave out the release")
    if len(names) < 2:
        raise InputError("give the ID of a release, then the ids of the documents to erase")
    return _erase(releases, find(releases, names[0]).name, [*names[1:]])


def _erase(releases: Path, name: str, documents: list[str]) -> int:
    """Make the release without the documents; print its id to stdout, and the next steps to stderr."""
    from taugate.registry import erasure  # opens a release, which takes a second

    erased = erasure.erase(releases, name, documents, trusted_keys())
    new_name = erased.manifest.release_id
    lines = [
        f"made from {name}; documents erased: {len(set(documents))}",
        f"golden queries with another answer: {erased.changed}; removed, because no answer is left: {erased.dropped}",
    ]
    lines += [f"withdrawn: {record.words} Not shown: {record.reason}." for record in erased.manifest.withdrawn or ()]
    if (releases / name / SIGNATURE).exists():
        lines.append(f"sign it first: taugate release sign {new_name} --releases {releases} --key PEM")
    lines.append(f"not promoted: taugate release promote {new_name} --releases {releases}")
    lines.append(
        f"{name} and older releases still have the texts; docs/runbooks/erase-a-document.md lists other copies"
    )
    for line in lines:
        say(line)
    print_result(f"{new_name}")
    return 0
