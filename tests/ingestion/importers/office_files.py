"""Small office files, written part by part."""

import io
import zipfile
from collections.abc import Mapping

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
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
    """Return relations of a part. targets: by id, the last word of the kind and the path."""
    items = "".join(
        f'<Relationship Id="{identifier}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for identifier, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{items}</Relationships>'


def content_types(kinds: Mapping[str, str]) -> str:
    """Return the list of content types. kinds: of parts, by name, after `application/vnd.openxmlformats-`."""
    items = "".join(
        f'<Override PartName="/{name}" ContentType="application/vnd.openxmlformats-{kind}+xml"/>'
        for name, kind in kinds.items()
    )
    return (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{items}</Types>'
    )


def docx(
    body: str,
    parts: Mapping[str, str | bytes] | None = None,
    targets: Mapping[str, tuple[str, str]] | None = None,
) -> bytes:
    """Write a Word file. body: its blocks as XML. parts: more of them, below `word/`. targets: of the document."""
    more = {f"word/{name}": content for name, content in (parts or {}).items()}
    return archive(
        {
            "[Content_Types].xml": content_types(
                {"word/document.xml": "officedocument.wordprocessingml.document.main"}
            ),
            "_rels/.rels": relations({"r1": ("officeDocument", "word/document.xml")}),
            "word/document.xml": f"<w:document {NAMESPACES}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": relations(targets or {}),
            **more,
        }
    )


def paragraph(text: str, more: str = "") -> str:
    """Return a paragraph of Word. more: runs behind its text, as XML."""
    return f'<w:p><w:r><w:t xml:space="preserve">{text}</w:t></w:r>{more}</w:p>'


def part(name: str, content: str) -> str:
    """Return a part of an office file. name: of its root element."""
    return f"<{name} {NAMESPACES}>{content}</{name}>"
