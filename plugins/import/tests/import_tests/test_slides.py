"""Presentations as text: slides in their order, titles as headings, tables, notes and drawings."""

import pytest

from import_tests.kept import complete
from import_tests.office_files import part, pptx, relations, shape
from taugate.data.parsed import ParsedDocument, UnreadableFile
from taugate_import.slides import parse_pptx


def read(raw: bytes) -> ParsedDocument:
    """Return the document of a presentation, after a check that it keeps all words of the file."""
    return complete(parse_pptx(raw)).documents[0]


def test_slides_follow_the_presentation_order() -> None:
    document = read(pptx([shape("Stop", "title") + shape("Turn it off."), shape("Start", "ctrTitle") + shape("On.")]))
    blocks = [(document.text[block.start : block.end], block.page, block.headings) for block in document.blocks]
    assert blocks == [
        ("# Start", 1, ("Start",)),
        ("On.", 1, ("Start",)),
        ("# Stop", 2, ("Stop",)),
        ("Turn it off.", 2, ("Stop",)),
    ]


def test_slide_tables_groups_and_alternatives_read_once() -> None:
    cell = "<a:tc><a:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></a:txBody></a:tc>"
    table = "".join(f"<a:tr>{cell.format(a)}{cell.format(b)}</a:tr>" for a, b in (("part", "days"), ("seal", "30")))
    frame = f"<p:graphicFrame><a:tbl>{table}</a:tbl></p:graphicFrame>"
    group = f"<p:grpSp>{shape('In a group')}</p:grpSp>"
    either = f"<mc:AlternateContent><mc:Choice>{shape('New')}</mc:Choice><mc:Fallback>{shape('New')}</mc:Fallback>"
    text = read(pptx([frame + group + either + "</mc:AlternateContent>"])).text
    assert text == "| part | days |\n| --- | --- |\n| seal | 30 |\n\nIn a group\n\nNew"


def test_slide_notes_and_diagrams_follow_their_slide() -> None:
    parts = {
        "ppt/slides/_rels/slide1.xml.rels": relations(
            {"n": ("notesSlide", "../notesSlides/notesSlide1.xml"), "d": ("diagramData", "../diagrams/data1.xml")}
        ),
        "ppt/notesSlides/notesSlide1.xml": part("p:notes", shape("Say this.", "body")),
        "ppt/diagrams/data1.xml": part("dgm:dataModel", "<a:p><a:r><a:t>Step one</a:t></a:r></a:p>"),
    }
    assert read(pptx([shape("Words")], parts)).text.split("\n\n") == ["Words", "Say this.", "Step one"]


def test_slide_numbers_and_animations_are_not_text() -> None:
    number = '<p:sp><p:nvPr><p:ph type="sldNum"/></p:nvPr><a:p><a:fld type="slidenum"><a:t>7</a:t></a:fld></a:p></p:sp>'
    timing = "<p:timing><p:attrName>style.visibility</p:attrName></p:timing>"
    assert read(pptx([shape("Words") + number + timing])).text == "Words"


def test_slide_equation_is_read_once() -> None:
    equation = (
        "<m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath>"
    )
    either = (
        f"<mc:AlternateContent><mc:Choice>{equation}</mc:Choice><mc:Fallback><a:r><a:t>x2</a:t></a:r></mc:Fallback>"
    )
    line = f"<p:sp><a:p><a:r><a:t>Area </a:t></a:r>{either}</mc:AlternateContent></a:p></p:sp>"
    notes = {
        "ppt/slides/_rels/slide1.xml.rels": relations({"n": ("notesSlide", "../notesSlides/notesSlide1.xml")}),
        "ppt/notesSlides/notesSlide1.xml": part("p:notes", line),
    }
    assert read(pptx([line], notes)).text == "Area x^2\n\nArea x^2"


def test_descriptions_of_pictures_are_read() -> None:
    picture = '<p:pic><p:nvPicPr><p:cNvPr id="4" name="P" descr="{}"/></p:nvPicPr></p:pic>'
    group = f"<p:grpSp>{picture.format('Twelve bolts')}{picture.format('C:/photos/flange.png')}</p:grpSp>"
    assert read(pptx([shape("Words") + group])).text == "Words\n\nTwelve bolts"


def test_presentation_without_text_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="holds no text"):
        parse_pptx(pptx([""]))
