"""PDF to text, page by page, with pdfium.

On Debian's manuals pdfium keeps every space and is 20 to 30 times faster than pypdf and pdfplumber, which glue words
together (docs/dependencies.md).
"""

import re
from collections import Counter
from collections.abc import Sequence

import pypdfium2

from taugate.ingestion.importers.metadata_values import split_tags
from taugate.ingestion.parsed import ParsedFile, TextBuilder, UnreadableFile
from taugate.retrieval.documents.store import MetadataValue

_SOFT_HYPHENS = re.compile("[\ufffe\u00ad\x02]\r?\n?")  # pdfium's marks for a word that is divided at the end of a line
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\r?\n(?=[^\W\d_A-Z])")
_DATE = re.compile(r"D:(\d{4})(\d\d)(\d\d)")
_RUNNING_LINES = 2  # lines at the top and bottom of a page that may be its running header or footer
_FEWEST_PAGES = 4  # with fewer, a line that repeats may be content


def parse_pdf(raw: bytes) -> ParsedFile:
    """Read a PDF as text: one block a page, with the headings of its outline, without running headers and footers.

    raw: its bytes. Raises UnreadableFile where it is damaged, encrypted, or holds pictures of text alone.
    """
    try:
        pdf = pypdfium2.PdfDocument(raw)
    except pypdfium2.PdfiumError as error:
        encrypted = "password" in str(error).lower()
        raise UnreadableFile(
            "is encrypted; save it without a password" if encrypted else "is not a PDF, or a damaged one"
        ) from error
    pages = [_page_text(pdf, number) for number in range(len(pdf))]
    if not any(page.strip() for page in pages):
        raise UnreadableFile("holds no text, only pictures; run OCR on it first")
    outline = _outline(pdf)
    builder = TextBuilder()
    headings: tuple[str, ...] = ()
    for number, text in enumerate(_without_running_lines(pages), start=1):
        headings = outline.get(number - 1, headings)
        builder.add(text, "prose", headings, number)
    facts = pdf.get_metadata_dict(skip_empty=True)
    document = builder.document(" ".join(facts.get("Title", "").split()), metadata=_metadata(facts))
    return ParsedFile([document], "\n".join(pages))


def _page_text(pdf: pypdfium2.PdfDocument, number: int) -> str:
    try:
        text: str = pdf[number].get_textpage().get_text_range()
    except pypdfium2.PdfiumError:  # one damaged page of many
        return ""
    return _HYPHEN.sub("", _SOFT_HYPHENS.sub("", text)).replace("\r\n", "\n").replace("\x00", "")


def _outline(pdf: pypdfium2.PdfDocument) -> dict[int, tuple[str, ...]]:
    """Return, for each page on which an entry of the outline begins, the path to the last such entry."""
    paths: dict[int, tuple[str, ...]] = {}
    path: list[str] = []
    try:
        for entry in pdf.get_toc(max_depth=6):
            path = [*path[: entry.level], " ".join((entry.get_title() or "").split())]
            target = entry.get_dest()
            page = target.get_index() if target else None
            if page is not None:
                paths[page] = tuple(filter(None, path))
    except pypdfium2.PdfiumError:  # a damaged outline is no reason to lose the text
        return {}
    return paths


def _without_running_lines(pages: Sequence[str]) -> list[str]:
    """Drop lines that stand at the top or bottom of over half of the pages, whatever number they carry."""
    lines = [page.strip("\n").split("\n") for page in pages]
    if len(pages) < _FEWEST_PAGES:
        return ["\n".join(each) for each in lines]
    seen = Counter(key for each in lines for key in {_key(line) for line in _edges(each)} if key)
    running = {key for key, count in seen.items() if 2 * count > len(pages)}
    return ["\n".join(_trimmed(each, running)) for each in lines]


def _trimmed(lines: list[str], running: set[str]) -> list[str]:
    """Return the lines between the first and the last that are content."""
    content = [number for number, line in enumerate(lines) if line.strip() and _key(line) not in running]
    return lines[content[0] : content[-1] + 1] if content else []


def _edges(lines: Sequence[str]) -> list[str]:
    return [*lines[:_RUNNING_LINES], *lines[-_RUNNING_LINES:]]


def _key(line: str) -> str:
    return re.sub(r"\d+", "0", line).strip()


def _metadata(facts: dict[str, str]) -> dict[str, MetadataValue]:
    """Return the dates and keywords of a file, the latter as tags."""
    named = {"created": facts.get("CreationDate", ""), "modified": facts.get("ModDate", "")}
    dates = {name: "-".join(found.groups()) for name, date in named.items() if (found := _DATE.match(date))}
    keywords = split_tags(facts.get("Keywords", ""))
    return {**dates, "tags": keywords} if keywords else {**dates}
