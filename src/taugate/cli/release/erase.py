"""`taugate release erase`: make a release without some documents, or check that nothing of them is left."""

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
    """Add the action, whose two forms take different positional arguments, which argparse cannot express.

    Args:
        actions: The subparsers of `taugate release`.
    """
    text = "make a release without some documents; --check: see that nothing of them is left"
    parser: argparse.ArgumentParser = actions.add_parser("erase", help=text, description=text, usage=_USAGE)
    parser.add_argument(
        "names", metavar="ID DOCUMENT…", nargs="+", help="release id, and ids of documents as in the corpus"
    )
    parser.add_argument(
        "--check", action="store_true", help="look through all files of DIR; exit code 1 where it is not gone"
    )
    parser.add_argument(
        "--text", metavar="TEXT", action="append", default=[], help="words of a document, looked for in every file"
    )
    parser.add_argument(
        "--also",
        metavar="PATH",
        type=Path,
        action="append",
        default=[],
        help="another file or folder to look through, such as a log of queries",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Erase documents, or with --check look for what is left of them."""
    if arguments.check:
        return _check(arguments)
    if arguments.text or arguments.also:
        raise InputError("--text and --also: only --check takes them; add --check, and leave the release out")
    if len(arguments.names) < 2:
        raise InputError("give the ID of a release, then the ids of the documents to erase")
    name, *documents = arguments.names
    return _erase(arguments.releases, find(arguments.releases, name).name, documents)


def _erase(releases: Path, name: str, documents: list[str]) -> int:
    """Make the release without the documents. Its id goes to stdout, and what to do next to stderr."""
    from taugate.registry.erasure import erase  # opens a release, which takes a second

    erased = erase(releases, name, documents, trusted_keys())
    made = erased.manifest.release_id
    lines = [
        f"made of {name}; documents erased: {len(set(documents))}",
        f"golden queries with another answer: {erased.answered}; without any, and gone: {erased.dropped}",
    ]
    if (releases / name / SIGNATURE).exists():
        lines.append(f"sign it first: taugate release sign {made} --releases {releases} --key PEM")
    lines.append(f"not promoted: taugate release promote {made} --releases {releases}")
    lines.append(
        f"{name} and older releases have the texts; docs/runbooks/erase-a-document.md says where else they are"
    )
    for line in lines:
        say(line)
    sys.stdout.write(f"{made}\n")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    """Look for what is left of the documents, and print it. Returns 1 where anything is."""
    left = find_remnants([arguments.releases, *arguments.also], arguments.names, arguments.text)
    for line in left.found:
        sys.stdout.write(f"{printable(line)}\n")
    say(f"{'something' if left.found else 'nothing'} is left, in {left.files:,} files")
    return 1 if left.found else 0
