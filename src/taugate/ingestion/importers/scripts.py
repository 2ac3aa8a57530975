"""Superscripts and subscripts as text that stays apart from the word before: 10⁵, torques¹², x^n, 10₂.

Digits and signs take their Unicode form, which compatibility forms (NFKC) of a text undo. What is a part of its word
stays in it: ordinals such as 5th, and subscripts of letters such as CO2.
"""

import re
from collections.abc import Iterable
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Literal

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


def script_text(text: str, script: Script, before: str, behind: str = "") -> str:
    """Return a superscript or subscript as plain text.

    Args:
        text: Its characters.
        script: Its kind; "" for text on the line, which is returned unchanged.
        before: Text before it.
        behind: Text after it.
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
    """Return the pieces of a line as text, without soft hyphens.

    Args:
        pieces: Each is superscript, subscript or on the line.
    """
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
