"""PDF to text, page by page, with pdfium; fields, notes and comments too, and what a damaged file lost.

On Debian's manuals pdfium keeps every space and is 20 to 30 times faster than pypdf and pdfplumber, which glue words
together (docs/dependencies.md).
"""

import ctypes
import logging
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lxml.etree
import pypdfium2
import pypdfium2.raw as pdfium

from taugate.data.parsed import ParsedFile, TextBuilder, UnreadableFile
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.pdf_lines import Line, drop_running_lines, edge_lines, in_margin, join_divided_words
from taugate_import.values import split_tags

_PACKED = re.compile(rb"/Filter\s*\[?\s*/FlateDecode\b[^\x00]{0,400}?>>\s*stream(?:\r\n|\n|\r)")
_MAX_INFLATED = 256 << 20  # bytes in all; anything beyond is not checked
_STEP = 1 << 20

# pypdfium2 warns of every XFA form, but their words are read here.
logging.getLogger("pypdfium2").setLevel(logging.ERROR)

_FILLED = {pdfium.FPDF_FORMFIELD_TEXTFIELD, pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX}
_CHECKED = {pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON}
# Annotations whose words are hidden, or shown elsewhere.
_WITHOUT_WORDS = {pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP, pdfium.FPDF_ANNOT_WIDGET}
_XFA_TEXTS = ("template", "datasets")

_DATE = re.compile(r"D:(\d{4})(\d\d)(\d\d)")
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
# Ghostscript 10.0 swaps the bytes of ligature letters, which makes them Chinese.
_SWAPPED = re.compile("[昀吀][昀椀氀栀樀琀]{1,2}")
# Letters that a font does not name: private characters, control characters, and the replacement character.
_UNNAMED = re.compile("[\x00\x01\x03-\x08\x0e-\x1f\ufffd\ue000-\uf8ff]")
_MAX_UNNAMED = 0.02  # share of the letters; bullets and other signs are often private characters
_SHOWN = 10  # pages, or attached files, named in a note


def damage_notes(raw: bytes) -> tuple[str, ...]:
    """Return the notes on a damaged file, as in `ParsedFile`; empty for an intact one."""
    if b"%%EOF" not in raw[-2048:]:
        return ("is cut off; text may be missing",)
    if b"/Encrypt" not in raw and not _is_sound(raw):
        return ("is damaged; text may be missing",)
    return ()


def _is_sound(raw: bytes) -> bool:
    """Return whether the compressed parts of a file can be unpacked, according to their checksums."""
    budget = _MAX_INFLATED
    for match in _PACKED.finditer(raw):
        unpacker, data = zlib.decompressobj(), raw[match.end() : raw.find(b"endstream", match.end())]
        try:
            while not unpacker.eof and budget > 0:
                size = len(unpacker.decompress(data, _STEP))
                data = unpacker.unconsumed_tail
                if not size and not data:
                    return False
                budget -= size
        except zlib.error:
            return False
    return True


def annotation_lines(pdf: pypdfium2.PdfDocument, page: pypdfium2.PdfPage) -> Iterator[str]:
    """Yield a line for each filled field of a page, with its label, and for each note or comment.

    Boxes that are not checked and hidden fields are left out. The forms of `pdf` have to be initialized.
    """
    for number in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        if not annotation:
            continue
        try:
            yield from filter(None, [_annotation_line(pdf, annotation)])
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def _annotation_line(pdf: pypdfium2.PdfDocument, annotation: Any) -> str:  # noqa: ANN401 (a pointer of pdfium)
    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if pdfium.FPDFAnnot_GetFlags(annotation) & pdfium.FPDF_ANNOT_FLAG_HIDDEN:
        return ""
    if kind == pdfium.FPDF_ANNOT_WIDGET and pdf.formenv:
        return _field_line(pdf.formenv, annotation)
    if kind in _WITHOUT_WORDS:
        return ""
    return _string(lambda buffer, size: pdfium.FPDFAnnot_GetStringValue(annotation, b"Contents", buffer, size)).strip()


def _field_line(form: pypdfium2.PdfFormEnv, annotation: Any) -> str:  # noqa: ANN401 (a pointer of pdfium)
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in _CHECKED and pdfium.FPDFAnnot_IsChecked(form, annotation):
        value = _string(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldExportValue(form, annotation, buffer, size))
    elif kind in _FILLED:
        value = _string(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldValue(form, annotation, buffer, size)).strip()
    else:
        value = ""
    if not value:
        return ""
    label = _string(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldAlternateName(form, annotation, buffer, size))
    if not label.strip():
        name = _string(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldName(form, annotation, buffer, size))
        label = name.rpartition(".")[2].partition("[")[0]
    return f"{' '.join(label.split())}: {value}".replace("\r\n", "\n").replace("\r", "\n")


def _string(read: Callable[[Any, int], int]) -> str:
    """Return a string of pdfium.

    Args:
        read: Fills a buffer, and returns the number of bytes needed.
    """
    size = read(None, 0)
    if size <= 2:  # the two bytes at the end
        return ""
    buffer = ctypes.create_string_buffer(size)
    read(ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace").replace("\x00", "")


def xfa_lines(pdf: pypdfium2.PdfDocument) -> list[str]:
    """Return the captions and values of an XFA form, as the page itself may only ask for another reader."""
    lines: list[str] = []
    for number in range(pdfium.FPDF_GetXFAPacketCount(pdf)):
        if _packet_name(pdf, number) in _XFA_TEXTS:
            root = lxml.etree.fromstring(
                _packet(pdf, number), lxml.etree.XMLParser(recover=True, resolve_entities=False, no_network=True)
            )
            lines += (
                [] if root is None else [text for content in root.itertext() if (text := " ".join(content.split()))]
            )
    return lines


def _packet_name(pdf: pypdfium2.PdfDocument, number: int) -> str:
    buffer = ctypes.create_string_buffer(max(pdfium.FPDF_GetXFAPacketName(pdf, number, None, 0), 1))
    pdfium.FPDF_GetXFAPacketName(pdf, number, buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace")


def _packet(pdf: pypdfium2.PdfDocument, number: int) -> bytes:
    size = ctypes.c_ulong()
    pdfium.FPDF_GetXFAPacketContent(pdf, number, None, 0, size)
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    pdfium.FPDF_GetXFAPacketContent(pdf, number, buffer, size.value, size)
    return buffer.raw[: size.value]


@dataclass(frozen=True, slots=True)
class _Page:
    """A page as read by pdfium.

    Attributes:
        text: Text of the page, None if the page is damaged.
        height: Height of the page, 0 if its lines do not run from left to right.
    """

    text: str | None
    heights: dict[int, float]
    height: float
    annotations: str
    is_picture: bool


def parse_pdf(raw: bytes) -> ParsedFile:
    """Read a PDF as text: one block per page, with the headings of its outline, without running headers and footers.

    Filled fields, notes and comments follow the text of their page. Attached files are not read.
    """
    try:
        pdf = pypdfium2.PdfDocument(raw)
        pdf.init_forms()
    except pypdfium2.PdfiumError as error:
        encrypted = "password" in str(error).lower()
        raise UnreadableFile(
            "is encrypted; save it without a password" if encrypted else "is not a PDF, or is damaged"
        ) from error
    pages = [_read_page(pdf, number) for number in range(len(pdf))]
    # Most XFA forms have their fields on the pages as well.
    form = "" if any(page.annotations for page in pages) else "\n".join(xfa_lines(pdf))
    if not form and not any((page.text or "").strip() or page.annotations for page in pages):
        raise UnreadableFile("holds no text, only pictures; run OCR on it first")
    texts = join_divided_words([_without_ligatures(page.text or "") for page in pages])
    outline = _outline(pdf)
    builder = TextBuilder()
    headings: tuple[str, ...] = ()
    lines_of_pages = [*map(_lines, texts, pages)]
    running = Counter(line.text for lines in lines_of_pages for line in lines)
    for number, lines in enumerate(drop_running_lines(lines_of_pages)):
        running.subtract(lines)
        headings = outline.get(number, headings)
        builder.add("\n".join(lines), "prose", headings, number + 1)
        builder.add(pages[number].annotations, "prose", headings, number + 1)
    builder.add(form, "prose")
    facts = pdf.get_metadata_dict(skip_empty=True)
    document = builder.document(" ".join(facts.get("Title", "").split()), metadata=_metadata(facts))
    source_text = "\n".join([*texts, *(page.annotations for page in pages), form])
    notes = (*_notes(pdf, pages, source_text), *damage_notes(raw))
    return ParsedFile([document], source_text, notes, "\n".join(running.elements()))


def _without_ligatures(text: str) -> str:
    swapped = _SWAPPED.sub(lambda match: match[0].encode("utf-16-be").decode("utf-16-le"), text)
    return swapped.translate(_LIGATURES)


def _read_page(pdf: pypdfium2.PdfDocument, number: int) -> _Page:
    try:
        page = pdf[number]
        reader = page.get_textpage()
        text = reader.get_text_range().replace("\r\n", "\n")
        height = page.get_height() if page.get_rotation() == 0 else 0.0
        heights = _heights(reader, text, page.get_mediabox()[1]) if height else {}
        annotations = "\n".join(annotation_lines(pdf, page))
        is_picture = not text.strip() and any(page.get_objects([pdfium.FPDF_PAGEOBJ_IMAGE], max_depth=3))
    except pypdfium2.PdfiumError:  # one damaged page of many
        return _Page(None, {}, 0.0, "", is_picture=False)
    return _Page(text, heights, height, annotations, is_picture)


def _heights(reader: pypdfium2.PdfTextPage, text: str, lower_edge: float) -> dict[int, float]:
    """Return the heights of possible running lines, by number."""
    lines = text.split("\n")
    heights, start = {}, 0
    edges = edge_lines(len(lines))
    for number, line in enumerate(lines):
        if number in edges and line.strip():
            offset = start + len(line) - len(line.lstrip())
            index = pdfium.FPDFText_GetCharIndexFromTextIndex(reader, offset)
            if index >= 0:
                heights[number] = reader.get_charbox(index, loose=True)[1] - lower_edge
        start += len(line) + 2  # pdfium ends a line with two characters
    return heights


def _lines(text: str, page: _Page) -> list[Line]:
    """Return the lines of a page, with the places of possible running lines."""
    lines = text.replace("\x00", "").split("\n")
    before = (page.text or "").split("\n")
    if len(lines) != len(before):
        return [Line(line) for line in lines]
    return [
        in_margin(line, page.heights[number], page.height) if number in page.heights else Line(line)
        for number, line in enumerate(lines)
    ]


def _notes(pdf: pypdfium2.PdfDocument, pages: Sequence[_Page], text: str) -> Iterator[str]:
    """Yield the notes on a file."""
    if pictures := [number for number, page in enumerate(pages, start=1) if page.is_picture]:
        yield f"has only pictures on {_page_list(pictures)}; run OCR on it first"
    if damaged := [number for number, page in enumerate(pages, start=1) if page.text is None]:
        yield f"cannot be read on {_page_list(damaged)}, which may be damaged"
    if len(_UNNAMED.findall(text)) > _MAX_UNNAMED * len(text):
        yield "has letters that its fonts do not name and that cannot be read; run OCR on it first"
    if count := pdf.count_attachments():
        names = _shown(pdf.get_attachment(number).get_name() for number in range(min(count, _SHOWN + 1)))
        yield f"has attached files, which are not read: {names}"


def _page_list(numbers: Sequence[int]) -> str:
    return f"{'page' if len(numbers) == 1 else 'pages'} {_shown(map(str, numbers))}"


def _shown(names: Iterable[str]) -> str:
    """Return names separated by commas, shortened if there are many."""
    listed = [*names]
    return ", ".join([*listed[:_SHOWN], *(["…"] if len(listed) > _SHOWN else [])])


def _outline(pdf: pypdfium2.PdfDocument) -> dict[int, tuple[str, ...]]:
    """Return, by page, the path to the last entry of the outline that begins on it."""
    paths: dict[int, tuple[str, ...]] = {}
    path: list[str] = []
    try:
        for entry in pdf.get_toc(max_depth=6):
            path = [*path[: entry.level], " ".join((entry.get_title() or "").split())]
            target = entry.get_dest()
            page = target.get_index() if target else None
            if page is not None:
                paths[page] = tuple(filter(None, path))
    except pypdfium2.PdfiumError:  # the text is kept if the outline is damaged
        return {}
    return paths


def _metadata(facts: dict[str, str]) -> dict[str, MetadataValue]:
    """Return the dates and keywords of a file, the keywords as tags."""
    named = {"created": facts.get("CreationDate", ""), "modified": facts.get("ModDate", "")}
    dates = {name: "-".join(match.groups()) for name, date in named.items() if (match := _DATE.match(date))}
    keywords = split_tags(facts.get("Keywords", ""))
    return {**dates, "tags": keywords} if keywords else {**dates}
