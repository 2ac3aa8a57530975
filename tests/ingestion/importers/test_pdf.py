"""PDF as text: pages, headings of the outline, running lines dropped, words joined that a line divides."""

from collections.abc import Sequence

import pytest

from taugate.ingestion.importers.pdf import parse_pdf
from taugate.ingestion.parsed import UnreadableFile


def pdf(pages: Sequence[Sequence[str]], outline: Sequence[tuple[str, int]] = ()) -> bytes:
    """Write a PDF with lines of text on each page, and an outline of titles and pages, from 0."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R /Outlines 3 0 R >>",
        "",
        "",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    numbers = []
    for lines in pages:
        shown = "".join(f"({line}) Tj 0 -14 Td " for line in lines)
        stream = f"BT /F1 12 Tf 50 750 Td {shown}ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 4 0 R >> >> >>"
        )
        numbers.append(len(objects))
    objects[1] = f"<< /Type /Pages /Count {len(pages)} /Kids [{' '.join(f'{n} 0 R' for n in numbers)}] >>"
    first = len(objects) + 1
    for i, (title, page) in enumerate(outline):
        following = f"/Next {first + i + 1} 0 R " if i + 1 < len(outline) else ""
        objects.append(f"<< /Title ({title}) /Parent 3 0 R {following}/Dest [{numbers[page]} 0 R /Fit] >>")
    ends = f"/First {first} 0 R /Last {len(objects)} 0 R " if outline else ""
    objects[2] = f"<< /Type /Outlines {ends}/Count {len(outline)} >>"
    facts = len(objects) + 1
    objects.append("<< /Title (Pump manual) /CreationDate (D:20230405120000Z) >>")
    body, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info {facts} 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return body + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


def test_pages_are_blocks_with_the_headings_of_the_outline() -> None:
    document = parse_pdf(
        pdf([["Welcome."], ["Turn it on."], ["Still on."], ["Turn it off."]], [("Start", 1), ("Stop", 3)])
    )
    assert document.title == "Pump manual" and document.metadata == {"created": "2023-04-05"}
    found = [(document.text[each.start : each.end], each.page, each.headings) for each in document.blocks]
    assert found == [
        ("Welcome.", 1, ()),
        ("Turn it on.", 2, ("Start",)),
        ("Still on.", 3, ("Start",)),
        ("Turn it off.", 4, ("Stop",)),
    ]


def test_running_headers_and_footers_are_dropped() -> None:
    words = ["one", "two", "three", "four", "five"]
    pages = [["Pump manual", f"Text {word} of the page.", f"Page {number} of 5"] for number, word in enumerate(words)]
    assert parse_pdf(pdf(pages)).text.split("\n\n") == [f"Text {word} of the page." for word in words]


def test_a_word_that_a_line_divides_is_joined() -> None:
    assert "is controlled by" in parse_pdf(pdf([["The pressure is con-", "trolled by the valve."]])).text


def test_a_pdf_of_pictures_says_so() -> None:
    with pytest.raises(UnreadableFile, match="holds no text, only pictures; run OCR"):
        parse_pdf(pdf([[]]))
