"""Words divided at the end of a line in a PDF: joined, or kept with their own hyphen."""

import re
from collections import Counter
from collections.abc import Sequence

# pdfium replaces a hyphen between letters at the end of a line, and the line break, by one of these marks.
_MARK = "[\ufffe\x02\u00ad]"
_DIVIDED = re.compile(rf"([^\W\d_]+)(?:{_MARK}\n?|[-\u2010]\n(?=[^\W\d_]))([^\W_]*)")
_WORD = re.compile(r"(?<![-\w])[^\W\d_]+(?:-[^\W\d_]+)*(?![-\w])")
# A hyphen before these stands for the second half of a later word, as in "Ein- und Ausgang".
_CONJUNCTIONS = frozenset({"and", "und", "oder", "bzw", "sowie", "och", "eller", "og"})
_ALWAYS_HYPHENATED = frozenset({"self", "well"})


def join_divided_words(pages: Sequence[str]) -> list[str]:
    """Return the text of pages with the words joined that are divided at the end of a line.

    Whether the hyphen belongs to the word is decided by the other text: `well-known` and `understand` elsewhere decide
    about these words. Otherwise "con-" and "trolled" are one word, but the hyphen is kept before a capital, after a
    single letter, between two words that the text also has alone, and in a word of three parts.

    Args:
        pages: Texts as read by pdfium.
    """
    undivided = (_DIVIDED.sub(" - ", page) for page in pages)
    words = Counter(match[0].casefold() for page in undivided for match in _WORD.finditer(page))
    return [_DIVIDED.sub(lambda match: _joined(match, words), page) for page in pages]


def _joined(match: re.Match[str], words: Counter[str]) -> str:
    """Return a word that is divided into two parts.

    Args:
        match: The divided word.
        words: Number of occurrences of the text's other words.
    """
    left, right = match[1], match[2]
    first, second = left.casefold(), right.casefold()
    joined, hyphenated = words[first + second], words[f"{first}-{second}"]
    if joined or hyphenated:
        return left + right if joined >= hyphenated else f"{left}-{right}"
    if second in _CONJUNCTIONS:
        return f"{left}- {right}"
    text = match.string
    before, after = text[max(match.start() - 2, 0) : match.start()], text[match.end() : match.end() + 1]
    in_chain = (before[:1].isalnum() and before[1:] == "-") or after == "-"
    is_compound = (
        in_chain
        or len(left) == 1
        or not (right.isalpha() and right[0].islower())
        or first in _ALWAYS_HYPHENATED
        or (words[first] and words[second])
    )
    return f"{left}-{right}" if is_compound else left + right
