"""Words with a digit of a file that its documents lack, or have in another form.

The share of words takes 2.50 for 2.5 and 10⁵ for 105. Here they are compared as they are written.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from unicodedata import normalize

from taugate.ingestion.importers.scripts import without_scripts
from taugate.ingestion.importers.word_share import UNSPACED, document_texts, pieces
from taugate.ingestion.parsed import ParsedDocument

_RAISED = "\u00b2\u00b3\u00b9\u2070-\u208e"
_TO_DIGITS = str.maketrans("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "23104567890123456789", "⁺⁻⁼⁽⁾ⁿ₊₋₌₍₎")
_SIGN = rf"[^\W_{_RAISED}{UNSPACED}]"
_WORD = re.compile(rf"[{_RAISED}]+|{_SIGN}+(?:(?:(?<=\d)[.,:]|(?<=\d[eE])[+-])(?=\d){_SIGN}+)*")
_SEPARATOR = re.compile("[.,:+-]")
_TIME = re.compile(r"(?<=\d)T(?=\d\d:)")  # in an ISO date, which a file may write with a space
_ZERO_OF_DATE = re.compile(r"(?<=\d-)0(?=\d)")


def lost_numbers(source_text: str, documents: Sequence[ParsedDocument], left_out: str = "") -> tuple[str, ...]:
    """Return the words with a digit that a file shows and its documents lack, in the order of the file.

    Raised digits are words of their own: 10⁵ is neither 105 nor torques¹² torques12.

    Args:
        source_text: The plain reading of the file.
        documents: Documents that the parser returned.
        left_out: Text of the plain reading that they do not need.
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
        words = _WORD.findall(_TIME.sub(" ", piece))
        yield from (word.translate(_TO_DIGITS) for word in words if any(map(str.isdigit, word)))
