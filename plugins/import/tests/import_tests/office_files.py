"""Small office files, written part by part."""

import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import quoteattr

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
NAMESPACES = " ".join(
    f'xmlns:{prefix}="{uri}"'
    for prefix, uri in {
        "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
        "c": "http://schemas.openxmlformats.org/drawingml/2006/chart",
        "dgm": "http://schemas.openxmlformats.org/drawingml/2006/diagram",
        "p": "http://schemas.openxmlformats.org/presentationml/2006/main",
        "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "v": "urn:schemas-microsoft-com:vml",
        "r": _OFFICE,
    }.items()
)


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    """Pack parts into a zip archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return packed.getvalue()


def relations(targets: Mapping[str, tuple[str, str]]) -> str:
    """Return relations of a part.

    Args:
        targets: By id, the last word of the kind and the path.
    """
    items = "".join(
        f'<Relationship Id="{identifier}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for identifier, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{items}</Relationships>'


def content_types(kinds: Mapping[str, str]) -> str:
    """Return the list of content types.

    Args:
        kinds: Kinds of parts, by name, after `application/vnd.openxmlformats-`.
    """
    items = "".join(
        f'<Override PartName="/{name}" ContentType="application/vnd.openxmlformats-{kind}+xml"/>'
        for name, kind in kinds.items()
    )
    return (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{items}</Types>'
    )


def docx(
    body: str, parts: Mapping[str, str | bytes] | None = None, targets: Mapping[str, tuple[str, str]] | None = None
) -> bytes:
    """Write a Word file.

    Args:
        body: Blocks of the document as XML.
        parts: Further parts, below `word/`.
        targets: Relations of the document.
    """
    further = {f"word/{name}": content for name, content in (parts or {}).items()}
    return archive(
        {
            "[Content_Types].xml": content_types(
                {"word/document.xml": "officedocument.wordprocessingml.document.main"}
            ),
            "_rels/.rels": relations({"r1": ("officeDocument", "word/document.xml")}),
            "word/document.xml": f"<w:document {NAMESPACES}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": relations(targets or {}),
            **further,
        }
    )


def paragraph(text: str, further: str = "") -> str:
    """Return a paragraph of Word.

    Args:
        more: Runs behind its text, as XML.
    """
    return f'<w:p><w:r><w:t xml:space="preserve">{text}</w:t></w:r>{further}</w:p>'


def part(name: str, content: str) -> str:
    """Return a part of an office file.

    Args:
        name: Name of its root element.
    """
    return f"<{name} {NAMESPACES}>{content}</{name}>"


def xlsx(
    sheets: Mapping[str, str], strings: str = "", parts: Mapping[str, str | bytes] | None = None, hidden: str = ""
) -> bytes:
    """Write a spreadsheet.

    Args:
        sheets: The rows of each sheet by name, as XML.
        strings: Shared strings.
        hidden: Name of a hidden sheet.
    """
    main = _SHEET
    names = {f"r{number}": name for number, name in enumerate(sheets, start=1)}
    states = {key: ' state="hidden"' if name == hidden else "" for key, name in names.items()}
    listed = "".join(
        f'<sheet name="{name}" sheetId="{key[1:]}" r:id="{key}"{states[key]}/>' for key, name in names.items()
    )
    targets = {key: ("worksheet", f"worksheets/sheet{key[1:]}.xml") for key in names}
    targets |= {"s": ("sharedStrings", "sharedStrings.xml"), "t": ("styles", "styles.xml")}
    formats = styles(["yyyy\\-mm\\-dd"]).replace("</cellXfs>", '<xf numFmtId="9"/></cellXfs>')
    pages = {
        f"xl/worksheets/sheet{number}.xml": f'<worksheet xmlns="{main}">{rows}</worksheet>'
        for number, rows in enumerate(sheets.values(), start=1)
    }
    return archive(
        {
            "[Content_Types].xml": content_types({"xl/workbook.xml": "officedocument.spreadsheetml.sheet.main"}),
            "_rels/.rels": relations({"r1": ("officeDocument", "xl/workbook.xml")}),
            "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(targets),
            "xl/sharedStrings.xml": f'<sst xmlns="{main}">{strings}</sst>',
            "xl/styles.xml": formats,
            **pages,
            **(parts or {}),
        }
    )


def styles(formats: Sequence[str]) -> str:
    """Return the styles of a spreadsheet.

    Args:
        formats: Number formats of the styles from 1 on; style 0 has none.
    """
    listed = "".join(f'<numFmt numFmtId="{164 + n}" formatCode={quoteattr(code)}/>' for n, code in enumerate(formats))
    used = "".join(f'<xf numFmtId="{164 + number}"/>' for number in range(len(formats)))
    cells = f'<cellXfs><xf numFmtId="0"/>{used}</cellXfs>'
    return f'<styleSheet xmlns="{_SHEET}"><numFmts>{listed}</numFmts>{cells}</styleSheet>'


def open_document_sheet(*lines: str) -> bytes:
    """Write a spreadsheet of OpenDocument.

    Args:
        lines: Cells of each row as XML: `cell` with attributes `kind`, `rows` and `columns`, and `covered`.
    """
    names = " ".join(
        f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{prefix}:1.0"'
        for prefix in ("office", "text", "table", "manifest")
    )
    cells = "".join(f"<table:table-row>{line}</table:table-row>" for line in lines)
    for short, full in {
        "<cell>": '<cell kind="string">',
        " kind=": " office:value-type=",
        " rows=": ' office:value-type="string" table:number-rows-spanned=',
        " columns=": ' office:value-type="string" table:number-columns-spanned=',
        "<covered": "<table:covered-table-cell",
        "</cell>": "</text:p></table:table-cell>",
    }.items():
        cells = cells.replace(short, full)
    cells = re.sub(r"<cell([^>]*)>", r"<table:table-cell\1><text:p>", cells)
    sheet = f'<table:table table:name="Sheet1">{cells}</table:table>'
    body = f"<office:body><office:spreadsheet>{sheet}</office:spreadsheet></office:body>"
    return archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "META-INF/manifest.xml": f"<manifest:manifest {names}/>",
            "content.xml": f"<office:document-content {names}>{body}</office:document-content>",
        }
    )


def rows(*lines: Sequence[object]) -> str:
    """Return rows of a sheet as XML.

    Args:
        lines: Cells; strings are written inside their cell, and None omits it.
    """
    written = []
    for number, line in enumerate(lines, start=1):
        cells = "".join(
            _cell(f"{chr(65 + column)}{number}", value) for column, value in enumerate(line) if value is not None
        )
        written.append(f'<row r="{number}">{cells}</row>' if cells else "")
    return f"<sheetData>{''.join(written)}</sheetData>"


def _cell(place: str, value: object) -> str:
    if isinstance(value, str) and value.startswith("<c"):
        return value.replace("<c", f'<c r="{place}"', 1)
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
    return f'<c r="{place}"><v>{value}</v></c>'


def pptx(slides: Sequence[str], parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """Write a presentation.

    Args:
        slides: The shapes of each slide as XML.
        parts: Further parts, by name.
    """
    names = {f"r{number}": f"slides/slide{number}.xml" for number in range(1, len(slides) + 1)}
    listed = "".join(f'<p:sldId id="{number}" r:id="r{number}"/>' for number in range(len(slides), 0, -1))
    return archive(
        {
            "[Content_Types].xml": content_types({"ppt/presentation.xml": "officedocument.presentationml"}),
            "_rels/.rels": relations({"r1": ("officeDocument", "ppt/presentation.xml")}),
            "ppt/presentation.xml": part("p:presentation", f"<p:sldIdLst>{listed}</p:sldIdLst>"),
            "ppt/_rels/presentation.xml.rels": relations({key: ("slide", name) for key, name in names.items()}),
            **{f"ppt/{names[f'r{n}']}": part("p:sld", shapes) for n, shapes in enumerate(slides, start=1)},
            **(parts or {}),
        }
    )


def shape(text: str, kind: str = "") -> str:
    """Return a shape of a slide.

    Args:
        kind: Kind of its placeholder, such as title.
    """
    placeholder = f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else ""
    lines = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in text.split("\n"))
    return f"<p:sp>{placeholder}<p:txBody>{lines}</p:txBody></p:sp>"
