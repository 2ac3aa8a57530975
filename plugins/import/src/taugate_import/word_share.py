"""How raised and lowered characters are written, and which share of a file's words reached its documents.

A parser that loses text cannot detect it. So its documents are compared with a plain reading of the same bytes, which
ignores layout: the number of words in both, divided by the number of words of the plain reading.

Words with a digit of a file that its documents lack, or have in another form. The share of words takes 2.50 for 2.5 and
10⁵ for 105. Here they are compared as they are written.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Literal
from unicodedata import normalize

from taugate.data.parsed import ParsedDocument
from taugate.retrieval.documents.store import MetadataValue

Script = Literal["", "super", "sub"]
SOFT_HYPHEN = "\u00ad"

_PLAIN = "0123456789+-\u2212=()"
_FORMS = {"super": "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾", "sub": "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎"}
_SIGNS = re.compile(rf"[{re.escape(_PLAIN)}\s,;\u2013]+")  # also lists of notes, such as 3, 5-7
_MARK = re.compile(r"[^\w+\-\u2212]")  # such as [12] and *, which stay apart by themselves
_WORDS = {"TM": "\u2122", "SM": "\u2120", "o": "\u00ba"}
# A part of its word: subscripts of letters; endings of ordinal numbers and abbreviations, such as 5th, XIXe, 2nde, Mme.
_WITHIN = re.compile(
    r"[^\W\d_] sub [^\W_]+$|(?:\d\.?|\b[IVXLCDM]+) super (?:st|nd|rd|th|[eè]r?e?s?|[eè]mes?|nde?|de|[oa]s)\b"
    r"|\b[A-Zn] super (?:mes?|lles?|ie|gr|os)\b"
)
_APART = re.compile(r"([\u2070-\u208e\u00b2\u00b3\u00b9]+)|(?:\^|_(?=\())\(?")

Element = Any  # lxml has no public type for an element


def script_text(text: str, script: Script, before: str, behind: str = "") -> str:
    """Return a superscript or subscript as plain text.

    Args:
        script: Its kind; "" for text on the line, which is returned unchanged.
    """
    core = text.strip()
    if not script or not core:
        return text
    beside = "" if text[0].isspace() else before[-1:]
    if _WITHIN.search(f"{before[-9:]} {script} {core}"):
        changed = core
    elif _SIGNS.fullmatch(core):
        changed = core.translate(str.maketrans(_PLAIN, _FORMS[script]))
    elif core in _WORDS:
        changed = _WORDS[core]
    elif _MARK.match(core) or not (beside.isalnum() or beside in {*")]}%\u2019"}):
        changed = f"{core} " if behind[:1].isalnum() else core
    else:
        changed = f"^{core}" if script == "super" and core.isalpha() else f"{'^' if script == 'super' else '_'}({core})"
    return text.replace(core, changed, 1)


def join_scripts(pieces: Iterable[tuple[Script, str]]) -> str:
    """Return the pieces of a line as text, without soft hyphens."""
    groups = groupby(filter(itemgetter(1), pieces), key=itemgetter(0))
    joined: list[tuple[Script, str]] = [(script, "".join(text for _, text in group)) for script, group in groups]
    joined.append(("", ""))
    line = ""
    for (script, text), (_, behind) in pairwise(joined):
        line += script_text(text, script, line, behind)
    return line.replace(SOFT_HYPHEN, "")


def set_apart(element: re.Match[str]) -> str:
    """Return the source of an element of superscript with space around it if it contains a digit: 10 5 for 10⁵."""
    return f" {element[0]} " if re.search(r"\d", re.sub("<[^<>]*>", "", element[0])) else element[0]


def without_scripts(text: str) -> str:
    """Return a text as a reading without regard to superscripts may have it: x^n is xn, and 10⁵ is 10 and 5."""
    return _APART.sub(lambda script: f" {script[1]} " if script[1] else "", text)


def linear_text(element: Element) -> str:
    """Return an equation, or a part of it, on one line, as one would type it."""
    write = _WRITERS.get(_name(element))
    if write:
        return write(element)
    if _name(element) in {"t", "delText"}:
        return str(element.text or "")
    return "".join(map(linear_text, element.iterchildren("*")))


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _part(element: Element, name: str) -> str:
    return "".join(linear_text(child) for child in element.iterchildren(f"{{*}}{name}"))


def _grouped(text: str) -> str:
    """Return a text in brackets, unless it is one number or word."""
    text = text.strip()
    return text if text.replace(".", "").replace(",", "").isalnum() or not text else f"({text})"


def _attribute(element: Element, name: str, default: str) -> str:
    """Return a property of an element, or the default."""
    for element_property in element.iterfind(f"./*/{{*}}{name}"):
        return str(next(iter(element_property.attrib.values()), ""))
    return default


def _scripts(element: Element) -> str:
    sub, sup = _part(element, "sub"), _part(element, "sup")
    return (f"_{_grouped(sub)}" if sub else "") + (f"^{_grouped(sup)}" if sup else "")


def _fraction(element: Element) -> str:
    return f"{_grouped(_part(element, 'num'))}/{_grouped(_part(element, 'den'))}"


def _radical(element: Element) -> str:
    return f"{_part(element, 'deg').strip()}√{_grouped(_part(element, 'e'))}"


def _operator(element: Element) -> str:
    return f"{_attribute(element, 'chr', '∫')}{_scripts(element)} {_part(element, 'e')}"


def _brackets(element: Element) -> str:
    separator = _attribute(element, "sepChr", "|")
    inner = separator.join(linear_text(child) for child in element.iterchildren("{*}e"))
    return f"{_attribute(element, 'begChr', '(')}{inner}{_attribute(element, 'endChr', ')')}"


def _function(element: Element) -> str:
    return f"{_part(element, 'fName')} {_part(element, 'e')}"


def _limit(element: Element) -> str:
    sign = "_" if _name(element) == "limLow" else "^"
    return f"{_part(element, 'e')}{sign}{_grouped(_part(element, 'lim'))}"


def _matrix(element: Element) -> str:
    rows = (", ".join(map(linear_text, row.iterchildren("{*}e"))) for row in element.iterchildren("{*}mr"))
    return f"[{'; '.join(rows)}]"


def _equations(element: Element) -> str:
    return "; ".join(map(linear_text, element.iterchildren("{*}e")))


_WRITERS: dict[str, Callable[[Element], str]] = {
    "f": _fraction,
    "rad": _radical,
    "nary": _operator,
    "d": _brackets,
    "func": _function,
    "limLow": _limit,
    "limUpp": _limit,
    "m": _matrix,
    "eqArr": _equations,
    **dict.fromkeys(("sSub", "sSup", "sSubSup"), lambda element: _part(element, "e") + _scripts(element)),
    "sPre": lambda element: _scripts(element) + _part(element, "e"),
}


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
