"""Equations of office files (OMML) as one line of text, such as `Q = A v` and `x = (-b ± √(b^2 - 4ac))/(2a)`."""

from collections.abc import Callable
from typing import Any

Element = Any  # lxml has no public type for an element


def linear_text(element: Element) -> str:
    """Return an equation, or a part of it, on one line, as one would type it.

    Args:
        element: Element of OMML.
    """
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
    """Return a property of an element, or the default.

    Args:
        element: Element of OMML.
        name: Name of the property.
        default: Result if the element has no such property.
    """
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
