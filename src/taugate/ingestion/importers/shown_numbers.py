"""Words with a digit of a file that its documents lack, or have in another form.

The share of words takes 2.50 for 2.5 and 10⁵ for 105. Here they are compared as they are written.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from unicodedata import normalize

from taugate.ingestion.importers.scripts import without_scripts
from taugate.ingestion.importers.word_share import UNSPACED, pieces, texts_of
from taugate.ingestion.parsed import ParsedDocument

_RAISED = "\u00b2\u00b3\u00b9\u2070-\u208e"
_TO_DIGITS = str.maketrans("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "23104567890123456789")
_SIGN = rf"[^\W_{_RAISED}{UNSPACED}]"
_WORD = re.compile(rf"[{_RAISED}]+|{_SIGN}+(?:(?<=\d)[.,:](?=\d){_SIGN}+)*")
_SEPARATOR = re.compile("[.,:]")


def lost_numbers(source_text: str, documents: Iterable[ParsedDocument], left_out: str = "") -> tuple[str, ...]:
    """Return the words with a digit that a file shows and its documents lack, in the order of the file.

    Raised digits are words of their own: 10⁵ is neither 105 nor torques¹² torques12.

    Args:
        source_text: The plain reading of the file.
        documents: Documents that the parser returned.
        left_out: Text of the plain reading that they do not need.
    """
    shown = Counter(_words_with_digit([source_text]))
    shown.subtract(_words_with_digit([left_out]))
    texts = [text for document in documents for text in texts_of(document)]
    kept = Counter(_words_with_digit(texts))
    # A plain reading may overlook that a digit is raised, and divide numbers at commas or line breaks between them.
    kept |= Counter(_words_with_digit(without_scripts(normalize("NFKC", text)) for text in texts))
    return tuple(
        word
        for word, count in shown.items()
        if count > max(kept[word], min(kept[part] for part in _SEPARATOR.split(word)))
    )


def _words_with_digit(texts: Iterable[str]) -> Iterator[str]:
    for piece in pieces(texts):
        yield from (word.translate(_TO_DIGITS) for word in _WORD.findall(piece) if any(map(str.isdigit, word)))
