"""Formulas as one line of text: superscripts and subscripts (10⁵, x^n, 10₂), and equations of office files (OMML).

Digits and signs take their Unicode form, which compatibility forms (NFKC) of a text undo. What is a part of its word
stays in it: ordinals such as 5th, and subscripts of letters such as CO2.
"""

import re
from collections.abc import Callable, Iterable
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Literal

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


def _value(element: Element, name: str, default: str) -> str:
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
    return f"{_value(element, 'chr', '∫')}{_scripts(element)} {_part(element, 'e')}"


def _brackets(element: Element) -> str:
    separator = _value(element, "sepChr", "|")
    inner = separator.join(linear_text(child) for child in element.iterchildren("{*}e"))
    return f"{_value(element, 'begChr', '(')}{inner}{_value(element, 'endChr', ')')}"


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
