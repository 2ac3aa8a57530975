"""Share of a file's words that reached its documents, and words with a digit that they lack.

A parser that loses text cannot detect it. So its documents are compared with a plain reading of the same bytes, which
ignores layout: the number of words in both, divided by the number of words of the plain reading.

Words with a digit of a file that its documents lack, or have in another form. The share of words takes 2.50 for 2.5 and
10⁵ for 105. Here they are compared as they are written.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from unicodedata import normalize

from taugate.data.parsed import ParsedDocument
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.scripts import SOFT_HYPHEN, without_scripts

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

_RAISED = "\u00b2\u00b3\u00b9\u2070-\u208e"
_TO_DIGITS = str.maketrans("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "23104567890123456789", "⁺⁻⁼⁽⁾ⁿ₊₋₌₍₎")
_SIGN = rf"[^\W_{_RAISED}{UNSPACED}]"
_SHOWN_NUMBERS_WORD = re.compile(rf"[{_RAISED}]+|{_SIGN}+(?:(?:(?<=\d)[.,:]|(?<=\d[eE])[+-])(?=\d){_SIGN}+)*")
_SEPARATOR = re.compile("[.,:+-]")
_TIME = re.compile(r"(?<=\d)T(?=\d\d:)")  # in an ISO date, which a file may write with a space
_ZERO_OF_DATE = re.compile(r"(?<=\d-)0(?=\d)")


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


def lost_numbers(source_text: str, documents: Sequence[ParsedDocument], left_out: str = "") -> tuple[str, ...]:
    """Return the words with a digit that a file shows and its documents lack, in the order of the file.

    Raised digits are words of their own: 10⁵ is neither 105 nor torques¹² torques12.
    """
    shown = Counter(_words_with_digit([source_text]))
    shown.subtract(_words_with_digit([left_out]))
    texts = [text for document in documents for text in document_texts(document)]
    kept = Counter(_words_with_digit(texts))
    # A plain reading may overlook that a digit is raised, and writes dates and lists of numbers as the file does.
    kept |= Counter(
        _words_with_digit(_ZERO_OF_DATE.sub("", without_scripts(normalize("NFKC", text))) for text in texts)
    )
    # Numbers that are only metadata have lost how they were written, which does not matter there.
    values = {
        float(value)
        for document in documents
        for value in document.metadata.values()
        if isinstance(value, int | float) and not isinstance(value, bool) and str(value) not in document.text
    }
    return tuple(
        word
        for word, count in shown.items()
        if count > max(kept[word], min(kept[part] for part in _SEPARATOR.split(word))) and _value(word) not in values
    )


def _value(word: str) -> float | None:
    """Return a word as a number, None if it is none, or a code such as 00815."""
    try:
        return None if re.match(r"0\d", word) else float(word.replace(",", "."))
    except ValueError:
        return None


def _words_with_digit(texts: Iterable[str]) -> Iterator[str]:
    for piece in pieces(texts):
        words = _SHOWN_NUMBERS_WORD.findall(_TIME.sub(" ", piece))
        yield from (word.translate(_TO_DIGITS) for word in words if any(map(str.isdigit, word)))
