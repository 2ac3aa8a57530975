"""Queries that are documents of the corpus; such a document is left out of the query's own results.

ArguAna, Quora, CQADupStack and SciDocs search for documents related to a document of the corpus, under the same id.
BEIR leaves out every document that has the id of the query. Ids that merely count, from 0 for queries and from 0 for
documents, are equal by chance, and the document may be the answer: so the texts have to agree as well.
"""

from collections import Counter
from collections.abc import Sequence

from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.words import words

# Copies of long texts differ by a correction or two; an equal share of a short question may be found by chance.
_MIN_WORDS_TO_DIFFER = 20
_MIN_SHARE = 0.9


def is_same_text(query: str, passages: Sequence[Document]) -> bool:
    """Return whether a query is the title, the text, or title and text of a document, but for case and punctuation.

    If the query has 20 words or more, nine in ten have to agree.

    Args:
        query: Text of the query.
        passages: The chunks of the document in their order, or the whole document.
    """
    query_words = words(query, rule=1)
    title = words(passages[0].title or "", rule=1)
    text = [word for passage in passages for word in words(passage.text, rule=1)]
    if not query_words:
        return False
    if query_words in (title, text, title + text):
        return True
    common = (Counter(query_words) & Counter(title + text)).total()
    return len(query_words) >= _MIN_WORDS_TO_DIFFER and common >= _MIN_SHARE * len(query_words)


def left_out_notes(empty: int, own_documents: int) -> list[str]:
    """Return messages for the user about documents and queries that are left out, a sentence each.

    Args:
        empty: Number of documents with neither title nor text.
        own_documents: Number of queries that are documents.
    """
    notes = []
    if empty:
        notes.append(f"documents left out, as they have neither title nor text: {empty:,}")
    if own_documents:
        notes.append(
            f"queries that are documents of the corpus, under the same id and with the same text: {own_documents:,}; "
            "each is left out of its own results, as BEIR does"
        )
    return notes
