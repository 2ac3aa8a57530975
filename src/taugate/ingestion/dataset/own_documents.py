"""Queries that are documents of the corpus: which document a query is, so that it is left out of its own results.

ArguAna, Quora, CQADupStack and SciDocs ask for other documents by one of the corpus, under the same id. BEIR leaves
every document out that has the id of the query. Ids that are merely counted, from 0 for queries and from 0 for
documents, are equal by chance, and then the document may be the answer: so the texts have to agree as well.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from taugate.retrieval.documents.store import Document

_WORD = re.compile(r"\w+")
# Copies of long texts differ by a correction or two; an equal share of a short question may be found by chance.
_MIN_WORDS_TO_DIFFER = 20
_MIN_SHARE = 0.9


def is_same_text(query: str, passages: Sequence[Document]) -> bool:
    """Tell whether a query is the text of a document: its title, its text, or both, but for case and punctuation.

    Of 20 words and more, nine in ten have to agree.

    Args:
        query: Its text.
        passages: The chunks of the document in their order, or the whole document.
    """
    asked = _words(query)
    title = _words(passages[0].title or "")
    text = [word for passage in passages for word in _words(passage.text)]
    if not asked:
        return False
    if asked in (title, text, title + text):
        return True
    common = (Counter(asked) & Counter(title + text)).total()
    return len(asked) >= _MIN_WORDS_TO_DIFFER and common >= _MIN_SHARE * len(asked)


def left_out_notes(empty: int, own: int) -> list[str]:
    """Return what the user has to know of documents and queries that are left out, a sentence each.

    Args:
        empty: Documents with neither title nor text.
        own: Queries that are documents.
    """
    notes = []
    if empty:
        notes.append(f"documents left out, as they have neither title nor text: {empty:,}")
    if own:
        notes.append(
            f"queries that are documents of the corpus, under the same id and with the same text: {own:,}; each is "
            "left out of its own results, as BEIR does"
        )
    return notes


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
