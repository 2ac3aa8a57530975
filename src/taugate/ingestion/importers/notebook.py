"""Jupyter notebooks (.ipynb): text as Markdown, code and its output as code."""

import re
from collections.abc import Iterator, Mapping
from typing import cast

import orjson

from taugate.ingestion.importers.html import parse_html
from taugate.ingestion.importers.html_source import read_source
from taugate.ingestion.importers.markdown import parse_markdown
from taugate.ingestion.importers.plain_text import decode_text
from taugate.ingestion.parsed import ParsedFile, UnreadableFile
from taugate.storage.json_values import Json

_TERMINAL_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NO_TEXT = {
    *("metadata", "cell_type", "output_type", "id", "name", "ename", "evalue", "language", "attachments", "stream")
}
_NO_FORMS = ("image/", "audio/", "video/", "application/", "text/javascript")
_NO_FORMS_BEFORE_4 = {"svg", "png", "jpeg", "json", "javascript", "pdf"}
# Forms of an output in order of preference; those without a slash are of version 3.
_FORMS = ("text/plain", "text", "text/markdown", "text/latex", "latex", "text/html", "html")
_REPRESENTATION = re.compile(r"\s*<[^<>\n]*>\s*")  # of an object, such as <IPython.core.display.HTML object>


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
        left_out = {*_NO_TEXT, *(_NO_FORMS_BEFORE_4 if "output_type" in value else ()), *_FORMS} - {_form(value)}
        for key, child in value.items():
            if key not in left_out and not key.startswith(_NO_FORMS):
                yield from _strings(child, key)
    elif isinstance(value, list) and not all(isinstance(line, str) for line in value):
        for child in value:
            yield from _strings(child, name)
    elif isinstance(value, list | str):
        text = _text(value, "\n" if name == "traceback" else "")
        yield read_source(text) if name in {"text/html", "html"} else text


def _cells(notebook: object) -> Iterator[Mapping[str, Json]]:
    """Yield the cells of a notebook; before version 4, they are in worksheets."""
    if not isinstance(notebook, Mapping):
        return
    sheets = notebook.get("worksheets")
    for holder in [notebook, *(sheets if isinstance(sheets, list) else [])]:
        cells = holder.get("cells") if isinstance(holder, Mapping) else None
        yield from (cell for cell in (cells if isinstance(cells, list) else []) if isinstance(cell, Mapping))


def _parts(cell: Mapping[str, Json]) -> Iterator[tuple[bool, str]]:
    """Yield the text of a cell and its outputs, each with whether it is Markdown."""
    kind = cell.get("cell_type")
    source = _text(cell.get("source", cell.get("input")))
    if kind == "heading":  # before version 4
        source = f"{'#' * int(cast(int, cell.get('level', 1)))} {source}"
    yield kind in {"markdown", "heading"}, source
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        if not isinstance(output, Mapping):
            continue
        data = output.get("data")
        shown = data if isinstance(data, Mapping) else output
        form = _form(shown)
        text = _text(shown.get(form))
        is_page = form in {"text/html", "html"}
        yield is_page or form == "text/markdown", parse_html(text.encode()).documents[0].text if is_page else text
        yield False, _text(output.get("traceback"), "\n")


def _form(output: Mapping[str, str | list[str]]) -> str:
    """Return the name of the form in which an output is read: its plain text, unless that only names another form."""
    forms = [name for name in _FORMS if name in output]
    pictures = [name for name in output if name in _NO_FORMS_BEFORE_4 or name.startswith(_NO_FORMS)]
    if forms and len(forms) + len(pictures) > 1 and _REPRESENTATION.fullmatch(_text(output[forms[0]])):
        del forms[0]
    return forms[0] if forms else ""


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
