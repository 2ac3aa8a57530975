"""`taugate explain`: why a document is, or is not, among the results of a search."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from taugate.cli.terminal.command import Command
from taugate.cli.terminal.output import print_result, printable, say_labelled
from taugate.registry.catalog import find

if TYPE_CHECKING:
    from taugate.retrieval.query import Explanation

_COSINE = "similarity"  # in what is printed; the kind of policy of this name is something else


@click.command("explain", cls=Command)
@click.argument("query", metavar="QUERY", help="the text to search for")
@click.argument("document", metavar="DOCUMENT", help="id of a document, or of one chunk")
@click.option(
    "--releases", metavar="DIR", type=click.Path(path_type=Path), required=True, help="the releases directory"
)
@click.option("--release", metavar="ID", help="the release to search (default: the current one)")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def _explain(query: str, document: str, releases: Path, release: str | None, as_json: bool) -> int:
    """Show the rank of a document for a query, the rule that keeps or drops it, and its margin."""
    from taugate.errors import InputError
    from taugate.retrieval.documents.visible_text import has_visible_text
    from taugate.retrieval.explanation import explain_stages
    from taugate.retrieval.query import Query
    from taugate.retrieval.reader import load

    if not has_visible_text(query):
        raise InputError("QUERY is blank; give the text to search for")
    loaded = load(find(releases, release))
    name = loaded.manifest.release_id
    explained = explain_stages(loaded.retriever, loaded.documents, Query(query, loaded.manifest.policy.k), document)
    if as_json:
        print_result(explained.to_reply(name))
        return 0
    print_result(printable(explained.why))
    passage = explained.document_id
    if explained.id != explained.document_id:
        passage = f"{explained.document_id}, by its chunk {explained.id}"
    say_labelled(
        {
            "document": printable(passage),
            "rank": "–" if explained.rank is None else f"{explained.rank:,} of {explained.ranked:,}",
            **_scores(explained),
            "relevance": "–" if explained.relevance is None else f"{explained.relevance:.3f}",
            "text": "longer than the encoder reads" if explained.truncated else "read to its end",
            **({"query": "longer than the encoder reads"} if explained.query_truncated else {}),
            "release": name,
        }
    )
    return 0


def _scores(explained: "Explanation") -> dict[str, str]:
    """Return the score by its name; with a lexical part also its parts and the words, with two stages both scores."""
    if explained.first_stage_score is not None:
        score = "–" if explained.score is None else f"{explained.score:.4f}"
        return {
            "score": score,
            "first stage": f"{explained.first_stage_score:.4f}, rank {explained.first_stage_rank:,}",
        }
    if explained.parts is None:
        return {_COSINE: f"{explained.score:.4f}"}
    return {
        "score": f"{explained.score:.4f}",
        _COSINE: f"{explained.parts.cosine:.4f}",
        "shared words": f"{explained.parts.lexical:.4f}",
        "words": printable(", ".join(explained.matched_words or ()) or "none of the query's"),
    }


command = _explain
