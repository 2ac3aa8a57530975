"""Superscripts and subscripts of every kind of file stay apart from the word before them."""

import pytest

from import_tests.office_files import docx, part, pptx
from import_tests.test_other_kinds import open_document
from taugate_import.parse import PARSERS
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
