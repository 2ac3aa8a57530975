"""An extension of Griffe: the parameters in a docstring become a list.

Docstrings here explain parameters in one paragraph, `name: what it is; other: what that is. Raises …`. That is short in
an editor and hard to read on a page.
"""

import re
from collections.abc import Collection
from typing import Any

import griffe


class ParameterList(griffe.Extension):
    """Rewrites the docstrings of functions and classes."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:  # noqa: ANN401 (Griffe's own signature)
        """Rewrite the docstring of a function.

        Args:
            func: That was read.
        """
        if func.docstring:
            func.docstring.value = listed(func.docstring.value, {parameter.name for parameter in func.parameters})

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:  # noqa: ANN401 (Griffe's own signature)
        """Rewrite the docstring of a class, which explains its fields; cls: that was read."""
        if cls.docstring:
            cls.docstring.value = listed(cls.docstring.value, set(cls.attributes))


def listed(docstring: str, names: Collection[str]) -> str:
    """Return a docstring whose paragraph of parameters is a list.

    Args:
        names: Of the parameters.
    """
    if not names:
        return docstring
    name = "|".join(map(re.escape, names))
    start = re.compile(rf"(?:(?<=[.;] )|^)((?:{name})(?:, (?:{name}))*): ", re.MULTILINE)
    return "\n\n".join(_list(paragraph, start) for paragraph in docstring.split("\n\n"))


def _list(paragraph: str, start: re.Pattern[str]) -> str:
    text = " ".join(paragraph.split())
    if start.match(text) is None:
        return paragraph
    _, *parts = start.split(text)
    items = []
    for names, meaning in zip(parts[::2], parts[1::2], strict=True):
        shown = ", ".join(f"`{name}`" for name in names.split(", "))
        items.append(f"- {shown}: {meaning.strip().rstrip(';.')}.")
    last, raises, errors = items[-1].partition(". Raises ")
    rest = f"\n\nRaises {errors}" if raises else ""
    return "\n".join([*items[:-1], f"{last.rstrip('.')}."]) + rest
