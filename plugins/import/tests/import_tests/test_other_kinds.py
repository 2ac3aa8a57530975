"""Notebooks, marked-up texts, source code, XML, subtitles, books, OpenDocument and Rich Text."""

import json

import pytest

from import_tests.kept import complete
from import_tests.office_files import archive
from taugate.data.parsed import ParsedDocument, ParsedFile, UnreadableFile
from taugate_import.parse import PARSERS

Blocks = list[tuple[str, str, tuple[str, ...]]]


def parsed(kind: str, raw: bytes | str) -> ParsedFile:
    """Return the parsed file, after a check that it keeps the words of the file."""
    return complete(PARSERS[kind](raw.encode() if isinstance(raw, str) else raw))


def blocks(document: ParsedDocument) -> Blocks:
    """Return the blocks of a document, each with its kind and headings."""
    return [(document.text[block.start : block.end], block.kind, block.headings) for block in document.blocks]


def test_notebook_cells_and_outputs_read() -> None:
    outputs = [
        {"output_type": "stream", "text": ["a\n"]},
        {"output_type": "execute_result", "data": {"text/plain": "42", "image/png": "iVBOR"}},
        {"output_type": "error", "traceback": ["\x1b[31mValueError\x1b[0m: bad"]},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Flow\n", "\n", "Of `x`."]},
        {"cell_type": "code", "source": "print('a')\n# ```", "outputs": outputs},
        {"cell_type": "markdown", "source": "## Next"},
    ]
    document = parsed(".ipynb", json.dumps({"nbformat": 4, "cells": cells})).documents[0]
    assert blocks(document) == [
        ("# Flow", "heading", ("Flow",)),
        ("Of `x`.", "prose", ("Flow",)),
        ("````\nprint('a')\n# ```\n````", "code", ("Flow",)),
        ("```\na\n```", "code", ("Flow",)),
        ("```\n42\n```", "code", ("Flow",)),
        ("```\nValueError: bad\n```", "code", ("Flow",)),
        ("## Next", "heading", ("Flow", "Next")),
    ]


def test_old_notebook_cells_are_read() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Flow"},
        {"cell_type": "code", "input": ["x = 1"], "outputs": [{"output_type": "pyout", "text": ["1"]}]},
    ]
    document = parsed(".ipynb", json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]})).documents[0]
    assert document.text == "## Flow\n\n```\nx = 1\n```\n\n```\n1\n```"


def output(plain: str, **forms: str) -> dict[str, object]:
    """Return an output of a notebook: its plain text, and other forms by the second word of their kind."""
    data = {"text/plain": plain, **{f"text/{form}": [text] for form, text in forms.items()}}
    return {"output_type": "display_data", "data": data}


def test_notebook_output_is_read_in_form_with_words() -> None:
    outputs = [
        output("<IPython.core.display.HTML object>", html="<style>b {}</style><table><tr><td>7 bar</td></tr></table>"),
        output("<IPython.core.display.Markdown object>", markdown="**Lowest flow** 9 litres"),
        output("<IPython.core.display.Math object>", latex="$torque = 12$"),
        output("   flow\n0     9", html="<table><tr><td>flow</td></tr><tr><td>9</td></tr></table>"),
        output("<Axes: title='Flow'>"),
        {"output_type": "display_data", "data": {"text/plain": "<Figure size 1x1 with 1 Axes>", "image/png": "iVBOR"}},
    ]
    cells = [{"cell_type": "code", "source": "", "outputs": outputs}]
    document = parsed(".ipynb", json.dumps({"nbformat": 4, "cells": cells})).documents[0]
    assert document.text.split("\n\n") == [
        "|  |\n| --- |\n| 7 bar |",
        "**Lowest flow** 9 litres",
        "```\n$torque = 12$\n```",
        "```\n   flow\n0     9\n```",
        "```\n<Axes: title='Flow'>\n```",
    ]


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"cells": []}'])
def test_json_without_cells_is_refused(raw: bytes) -> None:
    with pytest.raises(UnreadableFile, match="notebook"):
        PARSERS[".ipynb"](raw)


def test_restructured_text_titles_are_headings() -> None:
    text = (
        "=====\nPumps\n=====\n\nIntro.\n\nCare\n----\n\nReplace it::\n\n    seal\n\n    now\n\nDone.\n\n"
        "====  ====\none   two\n====  ====\na     b\n====  ====\n\nStart\n-----\nOn.\n"
    )
    assert blocks(parsed(".rst", text).documents[0]) == [
        ("=====\nPumps\n=====", "heading", ("Pumps",)),
        ("Intro.", "prose", ("Pumps",)),
        ("Care\n----", "heading", ("Pumps", "Care")),
        ("Replace it::", "prose", ("Pumps", "Care")),
        ("    seal\n\n    now", "code", ("Pumps", "Care")),
        ("Done.", "prose", ("Pumps", "Care")),
        ("====  ====\none   two\n====  ====\na     b\n====  ====", "prose", ("Pumps", "Care")),
        ("Start\n-----", "heading", ("Pumps", "Start")),
        ("On.", "prose", ("Pumps", "Start")),
    ]


def test_org_headings_and_listings_are_blocks() -> None:
    text = "* Care\nWords.\n** TODO Seal :brass:\n#+BEGIN_SRC sh\nseal\n\nnow\n#+END_SRC\n\nAfter.\n* Stop\n"
    assert blocks(parsed(".org", text).documents[0]) == [
        ("* Care", "heading", ("Care",)),
        ("Words.", "prose", ("Care",)),
        ("** TODO Seal :brass:", "heading", ("Care", "Seal")),
        ("#+BEGIN_SRC sh\nseal\n\nnow\n#+END_SRC", "code", ("Care", "Seal")),
        ("After.", "prose", ("Care", "Seal")),
        ("* Stop", "heading", ("Stop",)),
    ]


def test_org_title_is_the_title() -> None:
    (document,) = parsed(".org", "#+TITLE: Pump\n#+title: manual\n#+DATE: 2024\n\n* Start\nPress green.\n").documents
    assert document.title == "Pump manual" and document.text.startswith("#+DATE: 2024\n\n* Start")


def test_asciidoc_headings_and_listings_are_blocks() -> None:
    assert blocks(parsed(".adoc", "= Pumps\n\n== Care\n\n----\nseal\n\nnow\n----\n\nAfter.\n").documents[0]) == [
        ("= Pumps", "heading", ("Pumps",)),
        ("== Care", "heading", ("Pumps", "Care")),
        ("----\nseal\n\nnow\n----", "code", ("Pumps", "Care")),
        ("After.", "prose", ("Pumps", "Care")),
    ]


@pytest.mark.parametrize("kind", [".py", ".ts", ".c", ".sql", ".yaml", ".toml", ".tex", ".tf", ".log"])
def test_source_code_kept_in_whole_functions(kind: str) -> None:
    text = "import os\n\n\ndef f(a):\n    x = 1\n\n    return x\n\n\nclass A:\n    pass\n"
    assert blocks(parsed(kind, text).documents[0]) == [
        ("import os", "code", ()),
        ("def f(a):\n    x = 1\n\n    return x", "code", ()),
        ("class A:\n    pass", "code", ()),
    ]


def test_binary_source_code_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="is not text"):
        PARSERS[".ts"](b"G@\x00\x10\x00\x00" * 900)


def test_xml_elements_are_paragraphs() -> None:
    text = '<?xml version="1.0"?><doc><title>Größe</title><p>The <b>big</b> pump.</p><i><n>Seal</n><d>30</d></i></doc>'
    assert parsed(".xml", text).documents[0].text == "Größe\n\nThe big pump.\n\nSeal\n\n30"


def test_xml_of_attributes_or_damaged_is_code() -> None:
    for text in ('<beans><bean id="pump" class="org.example.Pump"/></beans>', "<doc><p>Broken words</doc>"):
        document = parsed(".xml", text).documents[0]
        assert document.text == text and document.blocks[0].kind == "code"


def test_xml_text_after_comments_is_kept() -> None:
    text = "<d><p>The pump <!-- 1 --> starts.</p><p>Mode <?mark x?>seven is<b/> for winter.</p><!-- 2 --><p>End</p></d>"
    assert parsed(".xml", text).documents[0].text == "The pump  starts.\n\nMode seven is for winter.\n\nEnd"


def test_xml_entities_are_resolved() -> None:
    entities = '<!ENTITY maker "<b>Valvo</b> &amp; &city;"><!ENTITY city "Oslo"><!ENTITY file SYSTEM "/etc/hostname">'
    text = f'<!DOCTYPE d SYSTEM "d.dtd" [{entities}]><d><p>Ask &maker; first.</p><p>Caf&eacute; &file; closed</p></d>'
    words = parsed(".xml", text).documents[0].text.split()
    assert words == ["Ask", "Valvo", "&", "Oslo", "first.", "Café", "&file;", "closed"]


def test_xml_with_entities_in_cycle_is_code() -> None:
    text = '<!DOCTYPE d [<!ENTITY a "&b;"><!ENTITY b "&a;">]><d><p>Words &a; more</p></d>'
    assert parsed(".xml", text).documents[0].blocks[0].kind == "code"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (".srt", "1\n00:00:01,000 --> 00:00:02,000\nOpen <i>it</i>\n\n2\n00:00:03,000 --> 00:00:04,000\nNow 7\n"),
        (
            ".vtt",
            "WEBVTT\n\n00:01.000 --> 00:02.000 align:start\nOpen <v Ada>it</v>\n\n00:03.000 --> 00:04.000\nNow 7\n",
        ),
    ],
)
def test_subtitles_are_read_without_times(kind: str, text: str) -> None:
    assert parsed(kind, text).documents[0].text == "Open it\n\nNow 7"


ROLLING = """WEBVTT
Kind: captions
Language: en

00:00:00.000 --> 00:00:02.000 align:start position:0%
 
open<00:00:00.400><c> the</c><00:00:00.800><c> valve</c>

00:00:02.000 --> 00:00:02.010 align:start position:0%
open the valve
 

00:00:02.010 --> 00:00:04.000 align:start position:0%
open the valve
slowly<00:00:02.500><c> by</c><00:00:03.000><c> hand</c>

00:00:04.000 --> 00:00:04.010 align:start position:0%
slowly by hand
 
"""  # noqa: W293 (captions of YouTube have lines of one space)


@pytest.mark.parametrize(
    ("kind", "text", "spoken"),
    [
        (".vtt", ROLLING, "open the valve\n\nslowly by hand"),
        (".vtt", "WEBVTT\n\nSTYLE\n::cue { color: red }\n\nNOTE by a tool\n\nREGION\nid:top\n\nintro-1\n"
                 "00:00.000 --> 00:02.000\nTools &amp; pumps\nof 5 &lt; 7 bar\n", "Tools & pumps\nof 5 < 7 bar"),
        (".srt", "1\n00:00:01,000 --> 00:00:04,000\nOne\n\n2\n00:00:02,000 --> 00:00:06,000\nOne\nTwo\n", "One\n\nTwo"),
        (".vtt", "WEBVTT - Title\n00:00.000 --> 00:02.000\nNo.\n\n00:09.000 --> 00:10.000\nNo.\n", "No.\n\nNo."),
        (".srt", "1\n00:00:01,000 --> 00:00:02,000\n{\\an8}<font color=\"red\">One</font>\n2\n"
                 "00:00:03,000 --> 00:00:04,000\nTwo\n\nstill two\n3\n00:00:05,000 --> 00:00:06,000\n2024\n",
                 "One\n\nTwo\n\nstill two\n\n2024"),
    ],
)  # fmt: skip
def test_captions_hold_what_is_said_once(kind: str, text: str, spoken: str) -> None:
    assert parsed(kind, text).documents[0].text == spoken


@pytest.mark.parametrize("run", ["<v ", "<v <v", "</a", "<1", "{\\", "0:", "1", "\n "])
def test_long_runs_in_captions_are_read_in_linear_steps(run: str) -> None:
    PARSERS[".srt"](f"00:00:01,000 --> 00:00:02,000\nText {run * 200_000}".encode())


def test_subtitle_speakers_are_kept() -> None:
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v.loud Ada Smith>Open it</v>\n"
    assert parsed(".vtt", text).documents[0].text == "Ada Smith: Open it"


def test_book_chapters_become_documents_in_order() -> None:
    page = "<html><head><title>{0}</title></head><body><h1>{0}</h1><p>Words of {0}.</p></body></html>"
    opf = (
        '<package xmlns:dc="d"><metadata><dc:title>Pumps</dc:title></metadata><manifest>'
        '<item id="a" href="c%201.xhtml"/><item id="b" href="c2.xhtml"/><item id="c" href="c3.xhtml"/>'
        '</manifest><spine><itemref idref="b"/><itemref idref="a"/><itemref idref="c"/></spine></package>'
    )
    book = parsed(
        ".epub",
        archive(
            {
                "META-INF/container.xml": '<container><rootfile full-path="OPS/book.opf"/></container>',
                "OPS/book.opf": opf,
                "OPS/c 1.xhtml": page.format("One"),
                "OPS/c2.xhtml": page.format("Two"),
            }
        ),
    )
    assert [(document.key, document.title) for document in book.documents] == [
        ("OPS/c2.xhtml", "Pumps > Two"),
        ("OPS/c 1.xhtml", "Pumps > One"),
    ]
    assert book.notes == ("lacks a chapter: OPS/c3.xhtml",)


LINK = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
OFFICE = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in {
        "office": "office",
        "text": "text",
        "table": "table",
        "draw": "drawing",
        "style": "style",
        "presentation": "presentation",
    }.items()
)


def open_document(body: str, parts: dict[str, str] | None = None) -> bytes:
    """Write a file of OpenDocument.

    Args:
        body: Blocks of the document as XML.
        parts: Further parts, by name.
    """
    content = f"<office:document-content {OFFICE} {LINK}><office:body>{body}</office:body></office:document-content>"
    return archive({"content.xml": content, **(parts or {})})


def test_open_document_text_read_with_boxes_and_notes() -> None:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    row = "<table:table-row>{}{}</table:table-row>"
    header = "<style:header><text:p>Pump manual</text:p></style:header>"
    equation = "<math><semantics><annotation>Q = A v</annotation></semantics></math>"
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        '<text:h text:outline-level="2">Care</text:h>'
        "<text:p>A<text:s/>seal<text:note><text:note-citation>1</text:note-citation><text:note-body>"
        "<text:p>Of brass.</text:p></text:note-body></text:note> leaks."
        "<draw:frame><draw:text-box><text:p>In a box.</text:p></draw:text-box></draw:frame>"
        '<draw:frame><draw:object xlink:href="./Object 1"/></draw:frame></text:p>'
        f"<table:table>{row.format(cell.format('part'), cell.format('days'))}"
        f"{row.format(cell.format('seal'), cell.format('30'))}</table:table>"
        "<text:list><text:list-item><text:p>one</text:p><text:list><text:list-item><text:p>two</text:p></text:list-item>"
        "</text:list></text:list-item></text:list>"
    )
    parts = {
        "styles.xml": f"<office:document-styles {OFFICE}>{header}</office:document-styles>",
        "Object 1/content.xml": equation,
    }
    text = parsed(".odt", open_document(body, parts)).documents[0].text
    assert text.split("\n\n") == [
        "## Care",
        "A seal leaks.",
        "Of brass.",
        "In a box.",
        "Q = A v",
        "| part | days |\n| --- | --- |\n| seal | 30 |",
        "- one\n  - two",
        "Pump manual",
    ]


def test_open_document_table_in_list_keeps_place() -> None:
    row = "<table:table-row><table:table-cell><text:p>{}</text:p></table:table-cell></table:table-row>"
    table = f"<table:table>{row}</table:table>"
    item = "<text:list-item><text:p>{}</text:p>{}</text:list-item>"
    inner = f"<text:list>{item.format('two', table.format('Torque two'))}</text:list>"
    body = f"<text:list>{item.format('one', table.format('Torque one') + inner)}{item.format('three', '')}</text:list>"
    assert parsed(".odt", open_document(body)).documents[0].text.split("\n\n") == [
        "- one",
        "| Torque one |\n| --- |",
        "  - two",
        "| Torque two |\n| --- |",
        "- three",
    ]


def test_open_document_picture_description_is_read() -> None:
    picture = "<draw:frame><draw:image/><svg:title>Flange</svg:title><svg:desc>Twelve bolts</svg:desc></draw:frame>"
    text = f'<text:p xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0">Close {picture} it.</text:p>'
    document = parsed(".odt", open_document(text)).documents[0]
    assert document.text.split("\n\n") == ["Close  it.", "Flange", "Twelve bolts"]


def test_open_document_slide_titles_are_headings() -> None:
    slide = (
        '<draw:page><draw:frame presentation:class="title"><draw:text-box><text:p>{}</text:p></draw:text-box>'
        "</draw:frame><draw:frame><draw:text-box><text:p>Words</text:p></draw:text-box></draw:frame></draw:page>"
    )
    document = parsed(".odp", open_document(slide.format("Start") + slide.format("Stop"))).documents[0]
    assert [(block.page, block.headings) for block in document.blocks] == [
        (1, ("Start",)),
        (1, ("Start",)),
        (2, ("Stop",)),
        (2, ("Stop",)),
    ]


def test_rich_text_format_read_with_codes() -> None:
    raw = (
        rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\*\generator Writer;}\pard Gr\'f6\'dfe {\b of} the pump\par "
        rb"\u8364? 30\par}"
    )
    document = parsed(".rtf", raw).documents[0]
    assert document.text == "Größe of the pump\n\n€ 30"


def test_rich_text_notes_follow_their_paragraph() -> None:
    raw = (
        r"{\rtf1\ansi{\header Pump manual}The boiler{\footnote A {\b big} one.} runs.{\*\annotation Really?}\par "
        r"{\shp{\*\shpinst{\sp{\sn shapeType}{\sv 202}}{\shptxt \pard Never open it.\par}}"
        r"{\shprslt{\*\do{\dptxbxtext\pard Never open it.\par}}}}The end.{\*\footnote Last.}}"
    )
    assert parsed(".rtf", raw).documents[0].text.split("\n\n") == [
        *("The boiler runs.", "A big one.", "The end.", "Never open it.", "Last.", "Pump manual", "Really?")
    ]


def test_rich_text_letters_depend_on_font() -> None:
    raw = (
        rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial Cyr;}{\f2\fcharset128 Mincho;}}"
        rb"\f1 \'cf\'f0\'e8\'e2\'e5\'f2 {\f0 caf\'e9} \'ec\'e8\'f0 {\f2 \'93\'fa\'96\'7b} {\uc2\u12354\'82\'a0} "
        rb"\u-10179?\u-8704? don\rquote t\par}"
    )
    assert parsed(".rtf", raw).documents[0].text == "Привет café мир 日本 あ \N{GRINNING FACE} don’t"
