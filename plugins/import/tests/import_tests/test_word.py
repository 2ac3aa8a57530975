"""Word files as text: content outside of paragraphs, alternatives and changes, damage."""

import io
import zipfile

import pytest

from import_tests.kept import complete
from import_tests.office_files import archive, docx, paragraph, part, pptx, relations, shape
from taugate.data.parsed import ParsedDocument, UnreadableFile
from taugate_import.slides import parse_pptx
from taugate_import.word import parse_docx
from taugate_import.word_share import count_words, share_kept

BOX = f"<wps:wsp><wps:txbx><w:txbxContent>{paragraph('In the box.')}</w:txbxContent></wps:txbx></wps:wsp>"
DRAWING = f"<w:drawing><wp:inline><wp:posOffset>4711</wp:posOffset><a:graphic>{BOX}</a:graphic></wp:inline></w:drawing>"
VML = (
    f"<w:pict><v:shape><v:textbox><w:txbxContent>{paragraph('In the box.')}</w:txbxContent></v:textbox></v:shape>"
    "</w:pict>"
)


def blocks(raw: bytes) -> list[str]:
    """Return the blocks of a Word file, after a check that it keeps its words and adds none."""
    parsed = complete(parse_docx(raw))
    assert not count_words(document.text for document in parsed.documents) - count_words([parsed.source_text])
    return [" ".join(block.split()) for document in parsed.documents for block in document.text.split("\n\n")]


@pytest.mark.parametrize(
    "box",
    [
        DRAWING,
        VML,
        f"<mc:AlternateContent><mc:Choice>{DRAWING}</mc:Choice><mc:Fallback>{VML}</mc:Fallback></mc:AlternateContent>",
    ],
    ids=["drawing", "vml", "both"],
)
def test_text_box_follows_its_paragraph_once(box: str) -> None:
    body = paragraph("Before.", f"<w:r>{box}</w:r>") + paragraph("After.")
    assert blocks(docx(body)) == ["Before.", "In the box.", "After."]


def test_text_boxes_keep_their_order() -> None:
    inner = paragraph("Outer.", f"<w:r>{DRAWING}</w:r>")
    outer = f"<w:r><w:drawing><wps:txbx><w:txbxContent>{inner}</w:txbxContent></wps:txbx></w:drawing></w:r>"
    last = f"<w:r>{VML.replace('In the box', 'Last')}</w:r>"
    assert sorted(blocks(docx(paragraph("Before.", outer + last) + paragraph("After.")))) == sorted(
        ["Before.", "Outer.", "In the box.", "Last.", "After."]
    )


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        ("<m:r><m:t>Q = A</m:t></m:r>", "Q = A"),
        ("<m:f><m:num><m:r><m:t>a+b</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>", "(a+b)/2"),
        ("<m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>", "x^2"),
        (
            "<m:sSubSup><m:e><m:r><m:t>v</m:t></m:r></m:e><m:sub><m:r><m:t>max</m:t></m:r></m:sub>"
            "<m:sup><m:r><m:t>n-1</m:t></m:r></m:sup></m:sSubSup>",
            "v_max^(n-1)",
        ),
        ("<m:rad><m:deg/><m:e><m:r><m:t>2gh</m:t></m:r></m:e></m:rad>", "√2gh"),
        (
            '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub><m:r><m:t>i=1</m:t></m:r></m:sub>'
            "<m:sup><m:r><m:t>n</m:t></m:r></m:sup><m:e><m:r><m:t>i</m:t></m:r></m:e></m:nary>",
            "∑_(i=1)^n i",
        ),
        ("<m:d><m:e><m:r><m:t>x</m:t></m:r></m:e></m:d>", "(x)"),
        (
            "<m:m><m:mr><m:e><m:r><m:t>1</m:t></m:r></m:e><m:e><m:r><m:t>0</m:t></m:r></m:e></m:mr>"
            "<m:mr><m:e><m:r><m:t>0</m:t></m:r></m:e><m:e><m:r><m:t>1</m:t></m:r></m:e></m:mr></m:m>",
            "[1, 0; 0, 1]",
        ),
    ],
)
def test_equation_is_line_of_text(equation: str, text: str) -> None:
    inline = paragraph("The flow is", f"<m:oMath>{equation}</m:oMath><w:r><w:t>in litres.</w:t></w:r>")
    display = f"<w:p><m:oMathPara><m:oMath>{equation}</m:oMath></m:oMathPara></w:p>"
    assert blocks(docx(inline + display)) == [f"The flow is {text} in litres.", text]


def test_headers_notes_and_comments_appended_once() -> None:
    note = '<w:footnote w:id="1">' + paragraph("Of brass.") + "</w:footnote>"
    parts = {
        "header1.xml": part("w:hdr", paragraph("Pump manual")),
        "header2.xml": part("w:hdr", paragraph("Pump manual")),
        "footer1.xml": part("w:ftr", paragraph("Waterworks")),
        "footnotes.xml": part("w:footnotes", note),
        "comments.xml": part("w:comments", f'<w:comment w:id="7">{paragraph("Check this.")}</w:comment>'),
    }
    body = paragraph("A valve", '<w:r><w:footnoteReference w:id="1"/></w:r>')
    text = parse_docx(docx(body, parts, {"n": ("footnotes", "footnotes.xml")})).documents[0].text
    assert text.startswith("A valve")
    assert all(text.count(words) == 1 for words in ("Of brass.", "Pump manual", "Waterworks", "Check this."))


def test_deleted_text_is_left_out() -> None:
    run = "<w:r><w:t>{}</w:t></w:r>"
    changes = (
        "<w:del><w:r><w:delText>three</w:delText></w:r></w:del>"
        f"<w:ins>{run.format(' two')}</w:ins><w:moveFrom>{run.format('gone')}</w:moveFrom>"
        f"<w:moveTo>{run.format(' here')}</w:moveTo>"
    )
    assert blocks(docx(paragraph("Bars:", changes))) == ["Bars: two here"]


@pytest.mark.parametrize(
    "wrapped",
    [
        "<w:sdt><w:sdtContent><w:r><w:t>text</w:t></w:r></w:sdtContent></w:sdt>",
        "<w:sdt><w:sdtContent><w:sdt><w:sdtContent><w:r><w:t>text</w:t></w:r></w:sdtContent></w:sdt></w:sdtContent></w:sdt>",
        '<w:fldSimple w:instr="DATE"><w:r><w:t>text</w:t></w:r></w:fldSimple>',
        "<w:smartTag><w:r><w:t>text</w:t></w:r></w:smartTag>",
        "<w:customXml><w:r><w:t>text</w:t></w:r></w:customXml>",
        "<w:bdo><w:r><w:t>text</w:t></w:r></w:bdo>",
        "<w:r><w:ruby><w:rubyBase><w:r><w:t>text</w:t></w:r></w:rubyBase></w:ruby></w:r>",
        "<w:r><w:rPr><w:vanish/></w:rPr><w:t>text</w:t></w:r>",
        '<w:hyperlink w:anchor="a"><w:r><w:t>text</w:t></w:r></w:hyperlink>',
    ],
)
def test_text_in_other_elements_read(wrapped: str) -> None:
    assert blocks(docx(paragraph("Before ", wrapped))) == ["Before text"]


def test_nested_tables_are_read() -> None:
    inner = f"<w:tbl><w:tr><w:tc>{paragraph('Brass')}</w:tc></w:tr></w:tbl>"
    text = " ".join(blocks(docx(f"<w:tbl><w:tr><w:tc>{paragraph('Seal')}{inner}<w:p/></w:tc></w:tr></w:tbl>")))
    assert "Seal" in text and "Brass" in text


def test_drawing_words_follow_their_paragraph() -> None:
    parts = {
        "diagrams/data1.xml": part("dgm:dataModel", "<dgm:pt><a:p><a:r><a:t>Open the valve</a:t></a:r></a:p></dgm:pt>"),
        "charts/chart1.xml": part(
            "c:chartSpace",
            "<a:p><a:r><a:t>Flow</a:t></a:r></a:p><c:ser><c:f>Sheet1!A1</c:f><c:v>Mill</c:v><c:v>41</c:v></c:ser>",
        ),
    }
    targets = {"d": ("diagramData", "diagrams/data1.xml"), "c": ("chart", "charts/chart1.xml")}
    drawings = (
        '<w:r><w:drawing><dgm:relIds r:dm="d"/></w:drawing></w:r><w:r><w:drawing><c:chart r:id="c"/></w:drawing></w:r>'
    )
    body = paragraph("Before.", drawings) + paragraph("After.")
    assert sorted(blocks(docx(body, parts, targets))) == ["After.", "Before.", "Flow", "Mill, 41", "Open the valve"]


def test_embedded_page_read_in_place() -> None:
    body = paragraph("Before.") + '<w:altChunk r:id="x"/>' + paragraph("After.")
    chunk = {"afchunk1.htm": "<html><body><p>Embedded words.</p></body></html>"}
    assert blocks(docx(body, chunk, {"x": ("aFChunk", "afchunk1.htm")})) == ["Before.", "Embedded words.", "After."]


def test_embedded_archive_is_read() -> None:
    body = paragraph("Before.") + '<w:altChunk r:id="x"/>' + paragraph("After.")
    page = (
        'MIME-Version: 1.0\nContent-Type: multipart/related; boundary="b"\n\n--b\nContent-Type: text/html; '
        'charset="utf-8"\nContent-Transfer-Encoding: quoted-printable\n\n<p>Gr=C3=B6=C3=9Fe.</p>\n--b--\n'
    )
    chunk = {"afchunk.mht": page}
    assert blocks(docx(body, chunk, {"x": ("aFChunk", "afchunk.mht")})) == ["Before.", "Größe.", "After."]
    parsed = parse_docx(docx(body, {"afchunk.rtf": "{}"}, {"x": ("aFChunk", "afchunk.rtf")}))
    assert parsed.notes == ("has an embedded document that is not read: word/afchunk.rtf",)


def test_line_breaks_divide_words() -> None:
    art = '<w:r><w:pict><v:shape><v:textpath string="Danger"/></v:shape></w:pict></w:r>'
    text = "<w:r><w:t>one</w:t><w:cr/><w:t>two</w:t><w:ptab/><w:t>three</w:t></w:r>"
    assert parse_docx(docx(paragraph("", text) + paragraph("x", art))).documents[0].text.split() == [
        *("one", "two", "three", "x"),
        "Danger",
    ]


@pytest.mark.parametrize(
    ("between", "text"),
    [
        ('<w:br w:type="page"/>', "seven close"),
        ('<w:br w:type="column"/>', "seven close"),
        ('<w:br w:type="textWrapping" w:clear="all"/>', "seven close"),
        ("<w:cr/>", "seven close"),
        ("<w:tab/>", "seven close"),
        ("<w:noBreakHyphen/>", "seven\u2011close"),
        ("<w:softHyphen/>", "sevenclose"),
        ("<w:t>\u00ad</w:t>", "sevenclose"),
        ("<w:lastRenderedPageBreak/>", "sevenclose"),
    ],
)
def test_break_divides_words_as_shown(between: str, text: str) -> None:
    runs = f"<w:r><w:t>seven</w:t>{between}<w:t>close</w:t></w:r>"
    in_cell = f"<w:tbl><w:tr><w:tc><w:p>{runs}</w:p></w:tc></w:tr></w:tbl>"
    assert blocks(docx(f"<w:p>{runs}</w:p>{in_cell}")) == [text, f"| | | --- | | {text} |"]


def test_picture_description_follows_its_paragraph() -> None:
    properties = '<wp:docPr id="1" descr="{0}"/><pic:pic xmlns:pic="p"><pic:cNvPr id="0" descr="{0}"/></pic:pic>'
    picture = f"<w:r><w:drawing><wp:inline>{properties}</wp:inline></w:drawing></w:r>"
    old = '<w:r><w:pict><v:shape alt="Old seal"/></w:pict></w:r>'
    body = (
        paragraph("Before", picture.format("Twelve bolts"))
        + paragraph("", old)
        + paragraph("x", picture.format("a.png"))
    )
    header = part("w:hdr", paragraph("", picture.format("Logo of the works")))
    text = parse_docx(docx(body, {"header1.xml": header})).documents[0].text
    assert text.split("\n\n") == ["Before", "Twelve bolts", "Old seal", "x", "Logo of the works"]


def test_strict_word_files_are_read() -> None:
    raw = docx(paragraph("Before.", f"<w:r>{DRAWING}</w:r>"))
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    transitional = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    assert blocks(_replaced(raw, transitional, strict)) == ["Before.", "In the box."]


def test_misplaced_text_counts_as_lost() -> None:
    raw = docx(paragraph("Kept words here.") + "<w:p><w:r>words without their element</w:r></w:p>")
    parsed = parse_docx(raw)
    assert share_kept(parsed.source_text, parsed.documents, parsed.left_out) < 0.98


def test_missing_part_is_noted() -> None:
    raw = docx(paragraph("Text"))
    listed = '<Override PartName="/word/footnotes.xml" ContentType="x"/></Types>'
    assert parse_docx(_replaced(raw, "</Types>", listed)).notes == ("lacks some of its parts: word/footnotes.xml",)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (docx(paragraph("Text"))[:-40], "is not a Word file, or is damaged"),
        (docx("<w:p>"), "is not a Word file, or is damaged"),
        (archive({"a.txt": "text"}), "is not a Word file, or is damaged"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "is encrypted or of an old format"),
    ],
)
def test_damaged_word_file_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(UnreadableFile, match=message):
        parse_docx(raw)


def _replaced(raw: bytes, old: str, new: str) -> bytes:
    """Return an archive with a text of its parts replaced."""
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        return archive({name: file.read(name).decode().replace(old, new) for name in file.namelist()})


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
