"""PDF to text, page by page, with pdfium.

On Debian's manuals pdfium keeps every space and is 20 to 30 times faster than pypdf and pdfplumber, which glue words
together (docs/dependencies.md).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pypdfium2
import pypdfium2.raw as pdfium

from taugate.ingestion.importers.metadata_values import split_tags
from taugate.ingestion.importers.pdf_damage import damage_notes
from taugate.ingestion.importers.pdf_forms import annotation_lines, xfa_lines
from taugate.ingestion.importers.pdf_hyphens import join_divided_words
from taugate.ingestion.importers.pdf_running_lines import Line, drop_running_lines, edge_lines, in_margin
from taugate.ingestion.parsed import ParsedFile, TextBuilder, UnreadableFile
from taugate.retrieval.documents.store import MetadataValue

_DATE = re.compile(r"D:(\d{4})(\d\d)(\d\d)")
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
# Ghostscript 10.0 swaps the bytes of ligature letters, which makes them Chinese.
_SWAPPED = re.compile("[昀吀][昀椀氀栀樀琀]{1,2}")
# Letters that a font does not name: private characters, control characters, and the replacement character.
_UNNAMED = re.compile("[\x00\x01\x03-\x08\x0e-\x1f\ufffd\ue000-\uf8ff]")
_MAX_UNNAMED = 0.02  # share of the letters; bullets and other signs are often private characters
_SHOWN = 10  # pages, or attached files, named in a note


@dataclass(frozen=True, slots=True)
class _Page:
    """A page as read by pdfium.

    Attributes:
        text: Text of the page, None if the page is damaged.
        heights: Heights of possible running lines above the lower edge of the page.
        height: Height of the page, 0 if its lines do not run from left to right.
        annotations: Filled fields, and notes.
        is_picture: Whether it has pictures and no text.
    """

    text: str | None
    heights: dict[int, float]
    height: float
    annotations: str
    is_picture: bool


def parse_pdf(raw: bytes) -> ParsedFile:
    """Read a PDF as text: one block per page, with the headings of its outline, without running headers and footers.

    Filled fields, notes and comments follow the text of their page. Attached files are not read.

    Raises:
        UnreadableFile: If it is damaged, encrypted, or has only pictures of text.
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
    """Return the heights of possible running lines, by number.

    Args:
        reader: Text of the page.
        text: The same as a string.
        lower_edge: Height of the page's lower edge.
    """
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
    """Return the lines of a page, with the places of possible running lines.

    Args:
        text: Text of the page, with divided words joined.
        page: The page.
    """
    lines = text.replace("\x00", "").split("\n")
    before = (page.text or "").split("\n")
    if len(lines) != len(before):
        return [Line(line) for line in lines]
    return [
        in_margin(line, page.heights[number], page.height) if number in page.heights else Line(line)
        for number, line in enumerate(lines)
    ]


def _notes(pdf: pypdfium2.PdfDocument, pages: Sequence[_Page], text: str) -> Iterator[str]:
    """Yield the notes on a file.

    Args:
        pdf: The file.
        pages: Its pages.
        text: The complete text.
    """
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
