"""Write paragraphs as files of the kinds that office programs, mail and notebooks have."""

import base64
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from email.message import EmailMessage
from html import escape

Paragraphs = Sequence[str]

_SCHEMAS = "http://schemas.openxmlformats.org"
_RELATIONS = f"{_SCHEMAS}/officeDocument/2006/relationships"
_OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns"


def archive(parts: Mapping[str, str]) -> bytes:
    """Pack parts, by name, into a zip archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return packed.getvalue()


def _package(main: str, kind: str, parts: Mapping[str, str], targets: Mapping[str, tuple[str, str]]) -> bytes:
    """Pack an Open XML file."""
    folder, _, name = main.rpartition("/")
    types = (
        f'<Types xmlns="{_SCHEMAS}/package/2006/content-types"><Default Extension="rels" ContentType="application/'
        f'vnd.openxmlformats-package.relationships+xml"/><Override PartName="/{main}" ContentType="application/'
        f'vnd.openxmlformats-officedocument.{kind}.main+xml"/></Types>'
    )
    return archive(
        {
            "[Content_Types].xml": types,
            "_rels/.rels": _relations({"r": ("officeDocument", main)}),
            f"{folder}/_rels/{name}.rels": _relations(targets),
            **parts,
        }
    )


def _relations(targets: Mapping[str, tuple[str, str]]) -> str:
    items = "".join(
        f'<Relationship Id="{key}" Type="{_RELATIONS}/{kind}" Target="{target}"/>'
        for key, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{_SCHEMAS}/package/2006/relationships">{items}</Relationships>'


def _docx(paragraphs: Paragraphs) -> bytes:
    """Write a Word file; every third paragraph stands in a text box."""
    text = ""
    for number, paragraph in enumerate(paragraphs):
        written = f"<w:p><w:r><w:t>{escape(paragraph)}</w:t></w:r></w:p>"
        box = f"<w:p><w:r><w:drawing><x:txbx><w:txbxContent>{written}</w:txbxContent></x:txbx></w:drawing></w:r></w:p>"
        text += box if number % 3 == 2 else written
    body = (
        f'<w:document xmlns:w="{_SCHEMAS}/wordprocessingml/2006/main" xmlns:x="urn:x"><w:body>{text}</w:body>'
        "</w:document>"
    )
    return _package("word/document.xml", "wordprocessingml.document", {"word/document.xml": body}, {})


def _xlsx(paragraphs: Paragraphs) -> bytes:
    strings = ["number", "text", *paragraphs]
    rows = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>' + "".join(
        f'<row r="{n}"><c r="A{n}"><v>{n}</v></c><c r="B{n}" t="s"><v>{n}</v></c></row>' for n in range(2, len(strings))
    )
    main = f'xmlns="{_SCHEMAS}/spreadsheetml/2006/main"'
    parts = {
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{_RELATIONS}"><sheets><sheet name="Sheet1" sheetId="1" r:id="a"/>'
        "</sheets></workbook>",
        "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{rows}</sheetData></worksheet>",
        "xl/sharedStrings.xml": f"<sst {main}>{''.join(f'<si><t>{escape(string)}</t></si>' for string in strings)}</sst>",
    }
    targets = {"a": ("worksheet", "worksheets/sheet1.xml"), "b": ("sharedStrings", "sharedStrings.xml")}
    return _package("xl/workbook.xml", "spreadsheetml.sheet", parts, targets)


def _pptx(paragraphs: Paragraphs) -> bytes:
    names = f'xmlns:p="{_SCHEMAS}/presentationml/2006/main" xmlns:a="{_SCHEMAS}/drawingml/2006/main"'
    slides = {
        f"ppt/slides/slide{number}.xml": f"<p:sld {names}><p:sp><a:p><a:r><a:t>{escape(each)}</a:t></a:r></a:p></p:sp>"
        "</p:sld>"
        for number, each in enumerate(paragraphs)
    }
    listed = "".join(f'<p:sldId r:id="r{number}"/>' for number in range(len(slides)))
    main = f'<p:presentation {names} xmlns:r="{_RELATIONS}"><p:sldIdLst>{listed}</p:sldIdLst></p:presentation>'
    targets = {f"r{number}": ("slide", f"slides/slide{number}.xml") for number in range(len(slides))}
    parts = {"ppt/presentation.xml": main, **slides}
    return _package("ppt/presentation.xml", "presentationml.presentation", parts, targets)


def _odt(paragraphs: Paragraphs) -> bytes:
    text = "".join(f"<text:p>{escape(paragraph)}</text:p>" for paragraph in paragraphs)
    names = f'xmlns:office="{_OPEN_DOCUMENT}:office:1.0" xmlns:text="{_OPEN_DOCUMENT}:text:1.0"'
    body = f"<office:body><office:text>{text}</office:text></office:body>"
    return archive({"content.xml": f"<office:document-content {names}>{body}</office:document-content>"})


def _eml(paragraphs: Paragraphs) -> bytes:
    """Write a mail; the second half of the text is an attached file."""
    half = len(paragraphs) // 2
    message = EmailMessage()
    message["Subject"], message["From"] = "Minutes", "ada@example.org"
    message.set_content("\n\n".join(paragraphs[:half]) + "\n")
    message.add_attachment("\n\n".join(paragraphs[half:]).encode(), "text", "plain", filename="more.txt")
    return message.as_bytes()


def _ipynb(paragraphs: Paragraphs) -> bytes:
    cells = [{"cell_type": "markdown", "source": paragraph} for paragraph in paragraphs[::2]]
    cells += [{"cell_type": "code", "source": each} for each in paragraphs[1::2]]
    return json.dumps({"nbformat": 4, "cells": cells}, ensure_ascii=False, indent=1).encode()


def _rtf(paragraphs: Paragraphs) -> bytes:
    text = "".join(
        "".join(
            f"\\{each}" if each in "\\{}" else each if each.isascii() else f"\\u{ord(each) % 65536}?"
            for each in paragraph
        ).replace("\n", " ")
        + "\\par\n"
        for paragraph in paragraphs
    )
    return f"{{\\rtf1\\ansi\\ansicpg1252 {text}}}".encode()


def _epub(paragraphs: Paragraphs) -> bytes:
    text = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    return archive(
        {
            "META-INF/container.xml": '<container><rootfile full-path="book.opf"/></container>',
            "book.opf": '<package><manifest><item id="a" href="a.xhtml"/></manifest><spine><itemref idref="a"/></spine>'
            "</package>",
            "a.xhtml": f"<html><body>{text}</body></html>",
        }
    )


WRITERS: dict[str, Callable[[Paragraphs], bytes]] = {
    "docx": _docx,
    "xlsx": _xlsx,
    "pptx": _pptx,
    "odt": _odt,
    "eml": _eml,
    "ipynb": _ipynb,
    "rtf": _rtf,
    "epub": _epub,
    "rst": lambda paragraphs: ("Minutes\n=======\n\n" + "\n\n".join(paragraphs) + "\n").encode(),
    "xml": lambda paragraphs: f"<doc>{''.join(f'<p>{escape(each)}</p>' for each in paragraphs)}</doc>".encode(),
    "py": lambda paragraphs: "\n\n\n".join(f"def f{n}():\n    {each!r}" for n, each in enumerate(paragraphs)).encode(),
}
"""By suffix: paragraphs to the bytes of a file."""


def decoded_parts(raw: bytes) -> str:
    """Return all that a file holds as text, its zip members and encoded parts unpacked, as a dumb reading finds it."""
    texts = [raw.decode("utf-8", "replace")]
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as file:
            texts = [file.read(name).decode("utf-8", "replace") for name in file.namelist()]
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, EOFError, RuntimeError):
        pass
    for block in raw.split(b"\n\n"):
        try:
            texts.append(base64.b64decode(block, validate=False).decode())
        except (ValueError, UnicodeDecodeError):
            continue
    return "\n".join(texts)
