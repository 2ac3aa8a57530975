"""`taugate release erase`: make a release without some documents, or search for their remains."""

import argparse
import sys
from pathlib import Path
from typing import Any

from taugate.cli.terminal.output import printable, say
from taugate.errors import InputError
from taugate.registry.catalog import find
from taugate.registry.remnants import find_remnants
from taugate.registry.signing import trusted_keys
from taugate.retrieval.release.layout import SIGNATURE

_USAGE = """%(prog)s ID DOCUMENT… --releases DIR
       %(prog)s --check DOCUMENT… --releases DIR [--text TEXT]… [--also PATH]…"""


def add_actions(actions: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the action, whose two forms take different positional arguments; argparse cannot express that.

    Args:
        actions: The subparsers of `taugate release`.
    """
    text = "make a release without some documents; --check: search for their remains"
    parser: argparse.ArgumentParser = actions.add_parser("erase", help=text, description=text, usage=_USAGE)
    parser.add_argument(
        "names", metavar="ID DOCUMENT…", nargs="+", help="release id, and ids of documents as in the corpus"
    )
    parser.add_argument(
        "--check", action="store_true", help="search all files of DIR; exit code 1 if anything is found"
    )
    parser.add_argument("--text", metavar="TEXT", action="append", default=[], help="words of a document to search for")
    parser.add_argument(
        "--also",
        metavar="PATH",
        type=Path,
        action="append",
        default=[],
        help="another file or folder to search, such as a query log",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Erase documents, or with --check search for their remains."""
    if arguments.check:
        return _check(arguments)
    if arguments.text or arguments.also:
        raise InputError("--text and --also: only valid with --check; add --check, and leave out the release")
    if len(arguments.names) < 2:
        raise InputError("give the ID of a release, then the ids of the documents to erase")
    name, *documents = arguments.names
    return _erase(arguments.releases, find(arguments.releases, name).name, documents)


def _erase(releases: Path, name: str, documents: list[str]) -> int:
    """Make the release without the documents; print its id to stdout, and the next steps to stderr."""
    from taugate.registry.erasure import erase  # opens a release, which takes a second

    erased = erase(releases, name, documents, trusted_keys())
    new_name = erased.manifest.release_id
    lines = [
        f"made from {name}; documents erased: {len(set(documents))}",
        f"golden queries with another answer: {erased.changed}; removed, because no answer is left: {erased.dropped}",
    ]
    if (releases / name / SIGNATURE).exists():
        lines.append(f"sign it first: taugate release sign {new_name} --releases {releases} --key PEM")
    lines.append(f"not promoted: taugate release promote {new_name} --releases {releases}")
    lines.append(
        f"{name} and older releases still have the texts; docs/runbooks/erase-a-document.md lists other copies"
    )
    for line in lines:
        say(line)
    sys.stdout.write(f"{new_name}\n")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    """Print the remains of the documents; returns 1 if there are any."""
    left = find_remnants([arguments.releases, *arguments.also], arguments.names, arguments.text)
    for line in left.matches:
        sys.stdout.write(f"{printable(line)}\n")
    say(f"{'found' if left.matches else 'found no'} text of the erased documents in {left.files:,} files searched")
    return 1 if left.matches else 0
