"""Jupyter notebooks (.ipynb): text as Markdown, code and its output as code."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from taugate.ingestion.importers.markdown import parse_markdown
from taugate.ingestion.importers.plain_text import decode_text
from taugate.ingestion.parsed import ParsedFile, UnreadableFile

_TERMINAL_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NO_TEXT = {
    "metadata",
    "cell_type",
    "output_type",
    "id",
    "name",
    "ename",
    "evalue",
    "language",
    "attachments",
    "stream",
}
_RICH = {"text/html", "text/latex", "text/markdown"}  # other forms of text/plain
_RICH_BEFORE_4 = {"html", "latex", "svg", "png", "jpeg", "json", "javascript", "pdf"}  # other forms of text
# Forms of an output in order of preference; those without a slash are of version 3.
_LANGUAGES = ("text/plain", "text/markdown", "text/latex", "text", "latex", "html")


def parse_notebook(raw: bytes) -> ParsedFile:
    """Read a notebook; pictures among its outputs are left out.

    Raises:
        UnreadableFile: If the file cannot be read.
    """
    decoded = decode_text(raw)
    try:
        notebook = orjson.loads(decoded.text)
    except orjson.JSONDecodeError as error:
        raise UnreadableFile(f"is not a notebook, or is damaged: {error.msg} on line {error.lineno}") from error
    cells = [*_cells(notebook)]
    if not cells:
        raise UnreadableFile("has no cells; it is not a notebook, or is empty")
    parts = [part for cell in cells for part in _parts(cell)]
    document = parse_markdown(
        "\n\n".join(part if is_text else _fenced(part) for is_text, part in parts), converted=True
    )
    return ParsedFile([document], "\n".join(_strings(notebook)), decoded.notes)


def _strings(value: object, name: str = "") -> Iterator[str]:
    """Yield all strings of a notebook except names, pictures, and internal data of programs."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            is_other_form = (key in _RICH and "text/plain" in value) or (
                key in _RICH_BEFORE_4 and "output_type" in value and ("text" in value or key not in _LANGUAGES)
            )
            if key not in _NO_TEXT and not is_other_form:
                yield from _strings(child, key)
    elif isinstance(value, list):
        yield ("\n" if name == "traceback" else "").join(
            _strip_colours(line) for line in value if isinstance(line, str)
        )
        for child in value:
            if not isinstance(child, str):
                yield from _strings(child, name)
    elif isinstance(value, str) and not name.startswith(("image/", "application/")):
        yield _strip_colours(value)


def _cells(notebook: object) -> Iterator[Mapping[str, Any]]:
    """Yield the cells of a notebook; before version 4, they are in worksheets."""
    if not isinstance(notebook, Mapping):
        return
    sheets = notebook.get("worksheets")
    for holder in [notebook, *(sheets if isinstance(sheets, list) else [])]:
        cells = holder.get("cells") if isinstance(holder, Mapping) else None
        yield from (cell for cell in (cells if isinstance(cells, list) else []) if isinstance(cell, Mapping))


def _parts(cell: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    """Yield the text of a cell and its outputs, each with whether it is Markdown."""
    kind = cell.get("cell_type")
    source = _text(cell.get("source", cell.get("input")))
    if kind == "heading":  # before version 4
        source = f"{'#' * int(cell.get('level', 1))} {source}"
    yield kind in {"markdown", "heading"}, source
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        if not isinstance(output, Mapping):
            continue
        data = output.get("data")
        shown = data if isinstance(data, Mapping) else output
        language = next((name for name in _LANGUAGES if name in shown), "text")
        yield language == "text/markdown", _text(shown.get(language))
        yield False, _text(output.get("traceback"), "\n")


def _text(value: object, between: str = "") -> str:
    """Return a text that a notebook holds as a string or as lines.

    Args:
        value: The text.
        between: Separator of the lines.
    """
    lines = value if isinstance(value, list) else [value]
    return between.join(_strip_colours(line) for line in lines if isinstance(line, str))


def _strip_colours(line: str) -> str:
    return _TERMINAL_COLOUR.sub("", line)


def _fenced(code: str) -> str:
    """Return code as a block of Markdown, empty if it is blank."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}\n{code.strip(chr(10))}\n{fence}" if code.strip() else ""
