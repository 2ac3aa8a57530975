"""Lines of a PDF: words divided at the end of one, and running headers and footers."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from taugate_import.word_share import MIN_SHARE_KEPT, count_words

# pdfium replaces a hyphen between letters at the end of a line, and the line break, by one of these marks.
_MARK = "[\ufffe\x02\u00ad]"
_DIVIDED = re.compile(rf"([^\W\d_]+)(?:{_MARK}\n?|[-\u2010]\n(?=[^\W\d_]))([^\W_]*)")
_WORD = re.compile(r"(?<![-\w])[^\W\d_]+(?:-[^\W\d_]+)*(?![-\w])")
# A hyphen before these stands for the second half of a later word, as in "Ein- und Ausgang".
_CONJUNCTIONS = frozenset({"and", "und", "oder", "bzw", "sowie", "och", "eller", "og"})
_ALWAYS_HYPHENATED = frozenset({"self", "well"})

_EDGE_LINES = 3  # lines at the beginning and end of a page's text that may be running
_MARGIN = 0.15  # of a page's height, at its top and bottom
_TOLERANCE = 3.0  # points that a running line may move up or down from page to page
_MIN_PAGES = 4  # in a shorter document, a repeated line may be content
_MIN_REPEATS = 3


def join_divided_words(pages: Sequence[str]) -> list[str]:
    """Return the text of pages with the words joined that are divided at the end of a line.

    Whether the hyphen belongs to the word is decided by the other text: `well-known` and `understand` elsewhere decide
    about these words. Otherwise "con-" and "trolled" are one word, but the hyphen is kept before a capital, after a
    single letter, between two words that the text also has alone, and in a word of three parts.
    """
    undivided = (_DIVIDED.sub(" - ", page) for page in pages)
    words = Counter(match[0].casefold() for page in undivided for match in _WORD.finditer(page))
    return [_DIVIDED.sub(lambda match: _joined(match, words), page) for page in pages]


def _joined(match: re.Match[str], words: Counter[str]) -> str:
    """Return a word that is divided into two parts."""
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


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page.

    Attributes:
        height: Height of its first letter above the lower edge of the page, in points; None if it is unknown, or the
            line is not in the margin at the top or bottom.
    """

    text: str
    height: float | None = None
    at_bottom: bool = False


def edge_lines(count: int) -> set[int]:
    """Return the positions of possible running lines on a page."""
    return {number for number in range(count) if number < _EDGE_LINES or number >= count - _EDGE_LINES}


def in_margin(text: str, height: float, page_height: float) -> Line:
    """Return a line with its place."""
    is_bottom = height < _MARGIN * page_height
    return Line(text, height if is_bottom or height > (1 - _MARGIN) * page_height else None, is_bottom)


def drop_running_lines(pages: Sequence[Sequence[Line]]) -> list[list[str]]:
    """Return the lines of each page without running headers and footers, except at their first occurrence.

    A line is running if it is the same on most pages, or on most odd or even ones, at the same height in the margin; at
    the bottom, or without letters, also if it is the same but for a number that counts the pages. Lines that differ in
    other digits are content. The dropped lines never exceed the share that a file may lose without a note: if most of
    the words of a document are running ones, as on slides, they are kept.
    """
    places: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
    for number, page in enumerate(pages):
        for position, line in enumerate(page):
            for key in _keys(line, number):
                places[key].append((number, position))
    budget = (1 - MIN_SHARE_KEPT) * sum(count_words(line.text for line in page).total() for page in pages)
    dropped: set[tuple[int, int]] = set()
    for size, repeats in sorted((_words(pages, repeats), repeats) for repeats in _running(pages, places)):
        if size > budget:
            break
        budget -= size
        dropped.update(repeats)
    return [
        [line.text for position, line in enumerate(page) if (number, position) not in dropped]
        for number, page in enumerate(pages)
    ]


def _keys(line: Line, number: int) -> Iterator[tuple[str, str, int]]:
    """Yield keys that a line shares with its repeats."""
    text = " ".join(line.text.split())
    if line.height is None or not text:
        return
    yield text, "", 0
    if line.at_bottom or not any(map(str.isalpha, text)):
        for digits in re.finditer(r"(?<![\d.,])\d{1,6}(?![\d.,]*\d)", text):
            yield text[: digits.start()], text[digits.end() :], int(digits[0]) - number


def _running(
    pages: Sequence[Sequence[Line]], places: dict[tuple[str, str, int], list[tuple[int, int]]]
) -> Iterator[list[tuple[int, int]]]:
    """Yield the places of each running line's repeats, without its first occurrence."""
    if len(pages) < _MIN_PAGES:
        return
    for occurrences in places.values():
        heights = sorted(pages[number][position].height or 0.0 for number, position in occurrences)
        usual = heights[len(heights) // 2]
        repeats = [
            (number, position)
            for number, position in occurrences
            if abs((pages[number][position].height or 0.0) - usual) <= _TOLERANCE
        ]
        numbers = {number for number, _ in repeats}
        parities = {number % 2 for number in numbers}
        of_pages = len(pages) if len(parities) == 2 else (len(pages) + 1 - min(parities)) // 2
        if len(numbers) >= _MIN_REPEATS and 2 * len(numbers) > of_pages:
            yield repeats[1:]


def _words(pages: Sequence[Sequence[Line]], places: Sequence[tuple[int, int]]) -> int:
    return count_words(pages[number][position].text for number, position in places).total()
