"""`taugate explain`: why a document is, or is not, among the results of a search."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from taugate.cli.terminal.output import printable, say_labelled
from taugate.registry.catalog import find

if TYPE_CHECKING:
    from taugate.retrieval.explanation import Explanation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate explain` to its parser."""
    parser.description = "Show the rank of a document for a query, the rule that keeps or drops it, and its margin."
    parser.add_argument("query", metavar="QUERY", help="the text to search for")
    parser.add_argument("document", metavar="DOCUMENT", help="id of a document, or of one chunk")
    parser.add_argument("--releases", metavar="DIR", type=Path, required=True, help="the releases directory")
    parser.add_argument("--release", metavar="ID", help="the release to search (default: the current one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the reason to stdout and the figures to stderr; with --json, print everything to stdout.

    Returns:
        The exit code.

    Raises:
        InputError: If the query is blank or the document is unknown.
    """
    from taugate.errors import InputError
    from taugate.retrieval.documents.visible_text import has_visible_text
    from taugate.retrieval.explanation import explain
    from taugate.retrieval.query import Query
    from taugate.retrieval.release.reader import load

    if not has_visible_text(arguments.query):
        raise InputError("QUERY is blank; give the text to search for")
    release = load(find(arguments.releases, arguments.release))
    query = Query(arguments.query, release.manifest.policy.k)
    explained = explain(release.retriever, release.documents, query, arguments.document)
    name = release.manifest.release_id
    if arguments.json:
        sys.stdout.write(json.dumps(explained.to_reply(name)) + "\n")
        return 0
    sys.stdout.write(f"{printable(explained.why)}\n")
    sys.stdout.flush()
    passage = explained.document_id
    if explained.id != explained.document_id:
        passage = f"{explained.document_id}, by its chunk {explained.id}"
    say_labelled(
        {
            "document": printable(passage),
            "rank": f"{explained.rank:,} of {explained.ranked:,}",
            **_scores(explained),
            "relevance": "–" if explained.relevance is None else f"{explained.relevance:.3f}",
            "text": "longer than the encoder reads" if explained.truncated else "read to its end",
            **({"query": "longer than the encoder reads"} if explained.query_truncated else {}),
            "release": name,
        }
    )
    return 0


def _scores(explained: "Explanation") -> dict[str, str]:
    """Return the score by its name or, if it has a lexical part, the score, its parts and the matching words."""
    if explained.parts is None:
        return {"similarity": f"{explained.score:.4f}"}
    return {
        "score": f"{explained.score:.4f}",
        "similarity": f"{explained.parts.cosine:.4f}",
        "shared words": f"{explained.parts.lexical:.4f}",
        "words": printable(", ".join(explained.matched_words or ()) or "none of the query's"),
    }
