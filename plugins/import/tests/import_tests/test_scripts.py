"""Superscripts and subscripts of every kind of file stay apart from the word before them."""

import zlib
from collections.abc import Callable, Sequence

import pytest

from import_tests.kept import complete
from import_tests.office_files import docx, part, pptx
from import_tests.test_other_kinds import open_document
from taugate.data.parsed import ParsedDocument, UnreadableFile
from taugate_import.parse import PARSERS
from taugate_import.pdf import parse_pdf
from taugate_import.word_share import Script, join_scripts, lost_numbers, script_text, share_kept, without_scripts


@pytest.mark.parametrize(
    ("before", "script", "text", "shown"),
    [
        ("10", "super", "5", "10⁵"),
        ("10", "super", "\u22123", "10⁻³"),
        ("Ca", "super", "2+", "Ca²⁺"),
        ("torques", "super", "12", "torques¹²"),
        ("torques", "super", "3, 5", "torques³, ⁵"),
        ("torques", "super", "[12]", "torques[12]"),
        ("torques", "super", "a", "torques^a"),
        ("12.5", "super", "a", "12.5^a"),
        ("e", "super", "-x/2", "e^(-x/2)"),
        ("(a+b)", "super", "n", "(a+b)^n"),
        ("5", "super", "th", "5th"),
        ("XIX", "super", "e", "XIXe"),
        ("M", "super", "me", "Mme"),
        ("20 ", "super", "o", "20 º"),
        ("Kevlar", "super", "TM", "Kevlar™"),
        ("", "super", "a", "a"),
        ("CO", "sub", "2", "CO2"),
        ("V", "sub", "max", "Vmax"),
        ("10", "sub", "2", "10₂"),
        ("x", "sub", "i+1", "x_(i+1)"),
        ("10", "", "5", "105"),
    ],
)
def test_script_stays_apart_from_word(before: str, script: Script, text: str, shown: str) -> None:
    assert before + script_text(text, script, before) == shown


def test_pieces_of_one_script_are_joined() -> None:
    pieces: list[tuple[Script, str]] = [("super", "a"), ("", "Mean 5"), ("super", "t"), ("super", "h"), ("", "\u00ad.")]
    assert join_scripts(pieces) == "a Mean 5th."


def test_plain_reading_of_scripts_matches_source() -> None:
    assert without_scripts("x^n x_(i+1) 10⁵").split() == ["xn", "xi+1)", "10", "⁵"]


RAISED, LOWERED = '<w:vertAlign w:val="superscript"/>', '<w:vertAlign w:val="subscript"/>'
STYLES = (
    f'<w:style w:type="character" w:styleId="Up"><w:rPr>{RAISED}</w:rPr></w:style>'
    '<w:style w:type="character" w:styleId="Note"><w:basedOn w:val="Up"/></w:style>'
)
AUTOMATIC = (
    '<office:automatic-styles><style:style style:name="T1"><style:text-properties style:text-position="super 58%"/>'
    '</style:style><style:style style:name="T2" style:parent-style-name="T1"/><style:style style:name="T3">'
    '<style:text-properties style:text-position="-33% 58%"/></style:style></office:automatic-styles>'
)


def run(text: str, look: str = "") -> str:
    return f'<w:r><w:rPr>{look}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def slide_run(text: str, baseline: str) -> str:
    return f'<a:r><a:rPr baseline="{baseline}"/><a:t>{text}</a:t></a:r>'


def span(style: str, text: str) -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


WORD = (
    run("lasts 10") + run("5", RAISED) + run(" torques") + run("12", '<w:rStyle w:val="Note"/>') + run(" 4 m")
    + run("3", '<w:position w:val="8"/><w:sz w:val="14"/>') + run(" CO") + run("2", LOWERED)
    + run(" 5") + run("th", RAISED)
)  # fmt: skip
SLIDE = (
    slide_run("lasts 10", "0") + slide_run("5", "30000") + slide_run(" torques", "") + slide_run("12", "33%")
    + slide_run(" 4 m", "0%") + slide_run("3", "30000") + slide_run(" CO", "") + slide_run("2", "-25000")
    + slide_run(" 5", "") + slide_run("th", "30000")
)  # fmt: skip
TEXT = (
    f"lasts 10{span('T1', '5')} torques{span('T2', '12')} 4 m{span('T1', '3')} CO{span('T3', '2')} 5{span('T1', 'th')}"
)
LIST = f"<text:list><text:list-item><text:p>{TEXT}</text:p></text:list-item></text:list>"
STYLE_PART = {"styles.xml": part("w:styles", STYLES)}
PAGE = (
    "<p>lasts 10<sup>5</sup> torques<sup><a href='#n'>12</a></sup> 4 m<span style='Vertical-Align: super'>3</span> "
    "CO<sub>2</sub> 5<sup>th</sup></p>"
)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (".docx", docx(f"<w:p>{WORD}</w:p>", STYLE_PART)),
        (".docx", docx(f"<w:tbl><w:tr><w:tc><w:p>{WORD}</w:p></w:tc></w:tr></w:tbl>", STYLE_PART)),
        (".pptx", pptx([f"<p:sp><p:txBody><a:p>{SLIDE}</a:p></p:txBody></p:sp>"])),
        (".odt", open_document(f"{AUTOMATIC}<text:p>{TEXT}</text:p>")),
        (".odp", open_document(f"{AUTOMATIC}<draw:page>{LIST}</draw:page>")),
        (".html", PAGE.encode()),
        (".html", f"<table><tr><td>{PAGE}</td></tr></table>".encode()),
        (".eml", f"Content-Type: text/html\n\n{PAGE}".encode()),
    ],
)  # fmt: skip
def test_raised_digits_of_file_stay_apart(kind: str, raw: bytes) -> None:
    parsed = PARSERS[kind](raw)
    assert "lasts 10⁵ torques¹² 4 m³ CO2 5th" in parsed.documents[0].text
    compared = (parsed.source_text, parsed.documents, parsed.left_out)
    assert share_kept(*compared) == 1 and not lost_numbers(*compared)


def pdf(
    pages: Sequence[Sequence[str]],
    outline: Sequence[tuple[str, int]] = (),
    footers: Sequence[str] = (),
    annotations: Sequence[str] = (),
    catalog: str = "",
) -> bytes:
    """Write a PDF with lines of text on each page, and an outline of titles and pages, from 0.

    Args:
        footers: Line at the bottom of each page.
        annotations: Objects, all on the first page; a form if one is a field.
        catalog: More entries of the catalog.
    """
    objects = ["", "", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    numbers = []
    for lines in pages:
        shown = "".join(f"({line}) Tj 0 -14 Td " for line in lines)
        footer = f" BT /F1 9 Tf 280 20 Td ({footers[len(numbers)]}) Tj ET" if footers else ""
        stream = f"BT /F1 12 Tf 50 750 Td {shown}ET{footer}"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {len(objects)} 0 R "
            f"/Resources << /Font << /F1 4 0 R >> >> {'' if numbers else '/Annots [ANNOTATIONS]'} >>"
        )
        numbers.append(len(objects))
    objects[1] = f"<< /Type /Pages /Count {len(pages)} /Kids [{' '.join(f'{n} 0 R' for n in numbers)}] >>"
    first = len(objects) + 1
    for i, (title, page) in enumerate(outline):
        following = f"/Next {first + i + 1} 0 R " if i + 1 < len(outline) else ""
        objects.append(f"<< /Title ({title}) /Parent 3 0 R {following}/Dest [{numbers[page]} 0 R /Fit] >>")
    ends = f"/First {first} 0 R /Last {len(objects)} 0 R " if outline else ""
    objects[2] = f"<< /Type /Outlines {ends}/Count {len(outline)} >>"
    references = " ".join(f"{len(objects) + 1 + number} 0 R" for number in range(len(annotations)))
    objects[numbers[0] - 1] = objects[numbers[0] - 1].replace("ANNOTATIONS", references)
    objects[0] = f"<< /Type /Catalog /Pages 2 0 R /Outlines 3 0 R /AcroForm << /Fields [{references}] >> {catalog} >>"
    objects += annotations
    facts = len(objects) + 1
    objects.append("<< /Title (Pump manual) /CreationDate (D:20230405120000Z) >>")
    body, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info {facts} 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return body + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


def read(raw: bytes) -> ParsedDocument:
    """Return the one document of a PDF, after a check that it keeps the words of the file."""
    return complete(parse_pdf(raw), 0.98).documents[0]


def prose(number: int, words: int = 200) -> list[str]:
    """Return lines with a number of words that differ from those of other numbers."""
    return [" ".join(f"word{number}x{line}x{word}" for word in range(10)) for line in range(words // 10)]


def test_pdf_pages_are_blocks_with_outline_headings() -> None:
    document = read(pdf([["Welcome."], ["Turn it on."], ["Still on."], ["Turn it off."]], [("Start", 1), ("Stop", 3)]))
    assert document.title == "Pump manual" and document.metadata == {"created": "2023-04-05"}
    blocks = [(document.text[block.start : block.end], block.page, block.headings) for block in document.blocks]
    assert blocks == [
        ("Welcome.", 1, ()),
        ("Turn it on.", 2, ("Start",)),
        ("Still on.", 3, ("Start",)),
        ("Turn it off.", 4, ("Stop",)),
    ]


def test_running_lines_are_kept_once() -> None:
    pages = [["Pump manual", *prose(number)] for number in range(12)]
    text = read(pdf(pages, footers=[f"Page {number}" for number in range(1, 13)])).text
    assert text.count("Pump manual") == 1 and text.count("Page") == 1
    assert all(line in text for page in pages for line in page)


def test_running_lines_alternating_by_page_kept_once() -> None:
    pages = [[("Care and repair", "Pump manual")[number % 2], *prose(number)] for number in range(12)]
    text = read(pdf(pages)).text
    assert text.count("Care and repair") == text.count("Pump manual") == 1


@pytest.mark.parametrize(
    "page",
    [
        lambda number: [f"Pump {100 + number}", f"Opens at {20 + number} bar", f"Weight: {number}.5 kg"],
        lambda number: [f"Step {number}", "Check the seal", f"Takes {5 * number} minutes"],
        lambda number: [f"2026-01-{day:02} Payment no. {30 * number + day} 3.00 EUR" for day in range(1, 31)],
        lambda number: ["Training for operators", f"Lesson {number}", "Mill Street"],
    ],
    ids=["data-sheets", "slides", "statement", "template"],
)
@pytest.mark.parametrize("count", [4, 8])
def test_short_similar_lines_are_content(page: Callable[[int], list[str]], count: int) -> None:
    pages = [page(number) for number in range(1, count + 1)]
    lines = read(pdf(pages)).text.split("\n")
    assert [line for line in lines if line] == [line for page_lines in pages for line in page_lines]


def test_equal_lines_inside_pages_are_content() -> None:
    pages = [[*prose(number, 250), "Close the valve.", *prose(number + 50, 250)] for number in range(6)]
    assert read(pdf(pages)).text.count("Close the valve.") == 6


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["The pressure is con-", "trolled by the valve."], "is controlled by"),
        (["A well-", "known fault."], "A well-known fault"),
        (["They under-", "stand it. We understand."], "They understand it"),
        (["A re-entry, and a re-", "entry of air."], "and a re-entry of"),
        (["The X-", "ray shows it."], "The X-ray shows"),
        (["The Anglo-", "Saxon unit."], "The Anglo-Saxon unit"),
        (["Der Ein-", "und Ausgang."], "Der Ein- und Ausgang"),
        (["With reset-then-", "reuse values."], "With reset-then-reuse values"),
        (["From 2019-", "2020 on."], "From 2019-\n2020 on"),
    ],
)
def test_divided_word_joined_with_its_hyphen(lines: list[str], text: str) -> None:
    assert text in read(pdf([lines])).text


def test_ligatures_become_letters() -> None:
    raw = (
        pdf([["of xce"]])
        .replace(b"(of xce)", b"(of\\256ce)")
        .replace(b"/BaseFont /Helvetica", b"/BaseFont /Helvetica /Encoding << /Differences [174 /fi] >>")
    )
    assert read(raw).text == "office"


def test_fields_and_notes_follow_their_page() -> None:
    fields = [
        "<< /Subtype /Widget /FT /Tx /T (site) /TU (Site name) /V (Mill Street) /Rect [0 0 9 9] >>",
        "<< /Subtype /Widget /FT /Ch /Ff 131072 /T (kind) /V (Piston) /Opt [(Piston) (Gear)] /Rect [0 0 9 9] >>",
        "<< /Subtype /Widget /FT /Btn /T (urgent) /V /Yes /AS /Yes /AP << /N << /Yes 4 0 R >> >> /Rect [0 0 9 9] >>",
        "<< /Subtype /Widget /FT /Btn /T (later) /V /Off /AS /Off /AP << /N << /Yes 4 0 R >> >> /Rect [0 0 9 9] >>",
        "<< /Subtype /Widget /FT /Tx /T (hidden) /V (Nothing) /F 2 /Rect [0 0 9 9] >>",
        "<< /Subtype /FreeText /Contents (Seal replaced) /Rect [0 0 9 9] >>",
    ]
    blocks = read(pdf([["Order"], ["End"]], annotations=fields)).text.split("\n\n")
    assert blocks == ["Order", "Site name: Mill Street\nkind: Piston\nurgent: Yes\nSeal replaced", "End"]


def test_pdf_of_pictures_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="holds no text, only pictures; run OCR"):
        parse_pdf(pdf([[]]))


def test_picture_pages_are_noted() -> None:
    picture = b"q 9 0 0 9 0 0 cm BI /W 1 /H 1 /BPC 8 /CS /G ID \x00 EI Q"
    raw = pdf([["First"], ["a" * 60], ["Third"]])
    shown = next(line for line in raw.split(b"\n") if b"a" * 60 in line)
    raw = raw.replace(shown, picture.ljust(len(shown)))
    assert parse_pdf(raw).notes == ("has only pictures on page 2; run OCR on it first",)


def test_pdf_attachments_are_noted() -> None:
    names = "/Names << /EmbeddedFiles << /Names [(a) << /Type /Filespec /F (parts.csv) /EF << /F 4 0 R >> >>] >> >>"
    assert parse_pdf(pdf([["Text"]], catalog=names)).notes == ("has attached files, which are not read: parts.csv",)


def test_truncated_pdf_is_noted() -> None:
    raw = pdf([["First"], ["Second"]])
    assert parse_pdf(raw).notes == ()
    assert parse_pdf(raw[:-6]).notes == ("is cut off; text may be missing",)


@pytest.mark.parametrize("place", [30, -20])
def test_pdf_with_damaged_page_noted(place: int) -> None:
    content = zlib.compress(b"BT /F1 12 Tf 50 750 Td (" + b" ".join(b"word%d" % n for n in range(90)) + b") Tj ET")
    sound = packed(content)
    assert parse_pdf(sound).notes == () and "word89" in read(sound).text
    flipped = bytearray(content)
    flipped[place] ^= 0x55
    assert parse_pdf(packed(bytes(flipped))).notes == ("is damaged; text may be missing",)


def packed(content: bytes) -> bytes:
    """Write a PDF with one compressed page of text, and another that is not compressed."""
    raw = pdf([["Replace me"], ["Sound page"]])
    start = raw.index(b"<< /Length")
    end = raw.index(b"endstream")
    head = b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(content)
    return raw[:start] + head + content + b"\n" + raw[end:]
