"""Share of a file's words that reached its documents.

A parser that loses text cannot detect it. So its documents are compared with a plain reading of the same bytes, which
ignores layout: the number of words in both, divided by the number of words of the plain reading.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator

from taugate.ingestion.importers.scripts import SOFT_HYPHEN, without_scripts
from taugate.ingestion.parsed import ParsedDocument
from taugate.retrieval.documents.store import MetadataValue

MIN_SHARE_KEPT = 0.98
"""A file below it is reported. Two readings of a file may divide two words in a hundred differently."""

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts that are written without spaces, which count by letter: Thai, Lao, Myanmar, Khmer, kana and Han."""
_SPACE = re.compile(r"\s")
_PIECE = 1 << 16  # characters
_ISO_TIME = re.compile(r"(?<=\d)t(?=\d\d:)")
# Numbers that change when they are read: with an exponent, or with more digits than a double has.
_FLOAT = re.compile(r"(?<![\w.])(?:\d+(?:\.\d+)?e[+-]?\d{1,3}|\d*\.\d{15,}(?:e[+-]?\d{1,3})?)(?!\w)")
_WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}_])\w)+")


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts, regardless of case; letters in scripts without spaces.

    Ligatures and other compatibility forms count as the letters that they stand for (NFKC). Numbers count without zeros
    at their ends, and dates without the T before the time: 3.50 is 3.5, and 5.6.2024 is 05.06.2024. Numbers with an
    exponent or many digits count as the double that they are: 1.5E3 is 1500.0.
    """
    counts: Counter[str] = Counter()
    for piece in pieces(texts):
        plain = unicodedata.normalize("NFKC", piece.replace(SOFT_HYPHEN, "")).casefold()
        plain = _FLOAT.sub(lambda number: repr(float(number[0])), _ISO_TIME.sub(" ", plain))
        counts.update(_WORD.findall(plain))
    for word in [word for word in counts if word.isdecimal() and "0" in {word[0], word[-1]}]:
        counts[word.strip("0")] += counts.pop(word)
    del counts[""]
    return counts


def pieces(texts: Iterable[str]) -> Iterator[str]:
    """Yield short texts joined, and long ones divided between words: a copy of a large file takes too much memory."""
    short: list[str] = []
    size = 0
    for text in texts:
        begin = 0
        while len(text) - begin > _PIECE:
            space = _SPACE.search(text, begin + _PIECE)
            end = space.end() if space else len(text)
            yield text[begin:end]
            begin = end
        short.append(text[begin:])
        size += len(text) - begin
        if size > _PIECE:
            yield "\n".join(short)
            short, size = [], 0
    yield "\n".join(short)


def share_kept(source_text: str, documents: Iterable[ParsedDocument], left_out: str = "") -> float:
    """Return the share of a file's words that its documents have, 1 if the file has none.

    A word that occurs twice in the file has to occur twice in the documents. Keys, titles and metadata count.

    Args:
        source_text: The plain reading of the file.
        documents: Documents that the parser returned.
        left_out: Text of the plain reading that they do not need.
    """
    words = count_words([source_text]) - count_words([left_out])
    if not words:
        return 1.0
    texts = [text for document in documents for text in document_texts(document)]
    kept = count_words(texts)
    if words - kept:
        kept |= count_words(map(without_scripts, texts))
    return (words & kept).total() / words.total()


def document_texts(document: ParsedDocument) -> Iterator[str]:
    """Yield everything that a document says: its key, title, text and metadata."""
    yield from (document.key, document.title, document.text)
    for value in document.metadata.values():
        yield _shown(value)


def _shown(value: MetadataValue) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)
