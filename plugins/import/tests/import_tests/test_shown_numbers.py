"""Words with a digit that a file shows and the corpus lacks are listed, and other readings of them are not."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from taugate.cli import main as cli
from taugate.data.parsed import prose_document
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.html import parse_html
from taugate_import.office_package import text_outside_tags
from taugate_import.parse import IsolatedParser, ReadFile
from taugate_import.sheet_cells import show_general, show_number, show_text
from taugate_import.word_share import count_words, lost_numbers, share_kept


@pytest.mark.parametrize(
    ("shown", "imported", "lost"),
    [
        ("article 00815", "article 815", ["00815"]),
        ("2.50 bar", "2.5 bar", ["2.50"]),
        ("version 1.10", "version 1.1", ["1.10"]),
        ("15 %", "0.15", ["15"]),
        ("42:00", "1 day, 18:00:00", ["42:00"]),
        ("0.3", "0.30000000000000004", ["0.3"]),
        ("1,000 pumps", "1000 pumps", ["1,000"]),
        ("10 5 cycles", "105 cycles", ["10", "5"]),
        ("10⁵ cycles", "105 cycles", ["10", "5"]),
        ("torques 12", "torques12", ["12"]),
        ("P-007 and 7", "P-7 and 7", ["007"]),
        ("7 and 7", "7", ["7"]),
        ("٢٠٢٤", "", ["٢٠٢٤"]),
    ],
)
def test_number_in_another_form_is_listed(shown: str, imported: str, lost: list[str]) -> None:
    assert lost_numbers(shown, [prose_document(imported)]) == (*lost,)


@pytest.mark.parametrize(
    ("shown", "imported"),
    [
        ("Pump,3,4\n", "Pump\n3\n4"),
        ("10 5 cycles", "10⁵ cycles"),
        ("10 -2 bar, 62 m 2", "10⁻² bar, 62 m²"),
        ("105 cycles", "10⁵ cycles"),  # a reading that does not see that the digit is raised
        ("2n pumps", "2^n pumps"),
        ("CO2", "CO2"),
        ("at 2024-05-06 07:08", "at 2024-05-06T07:08"),
        ("on 5.6.2024", "on 2024-06-05"),
        ("水5章", "水 5 章"),
    ],
)
def test_number_of_another_reading_is_kept(shown: str, imported: str) -> None:
    assert lost_numbers(shown, [prose_document(imported)]) == ()


@pytest.mark.parametrize(("shown", "value"), [("3.50", 3.5), ("1.5e-3", 0.0015), ("3,50", 3.5), ("6", 6.0)])
def test_number_that_is_only_metadata_is_kept(shown: str, value: MetadataValue) -> None:
    document = dataclasses.replace(prose_document("Pump"), metadata={"price": value})
    assert lost_numbers(shown, [document]) == ()


@pytest.mark.parametrize(("shown", "value", "text"), [("00815", 815, "815"), ("00815", 815, ""), ("2.50", 2.5, "2.5")])
def test_metadata_does_not_hide_changed_text(shown: str, value: MetadataValue, text: str) -> None:
    document = dataclasses.replace(prose_document(text), metadata={"article": value})
    assert lost_numbers(shown, [document]) == (shown,)


def test_text_that_is_left_out_is_not_lost() -> None:
    assert lost_numbers("Page 1 of 12. Pump 12.", [prose_document("Pump 12.")], "Page 1 of 12.") == ()


@pytest.mark.parametrize(
    ("raised", "read"),
    [
        ("10<sup>5</sup> cycles", "10 5 cycles"),
        ('torques<sup class="n"><a href="#n">[12]</a></sup>', "torques [12]"),
        ("10<SUP>-3</SUP>", "10 -3"),
        ("the 5<sup>th</sup>", "the 5th"),
        ("2<sup>n+1</sup>", "2 n+1"),
    ],
)
def test_plain_reading_of_page_keeps_raised_digits_apart(raised: str, read: str) -> None:
    assert " ".join(parse_html(f"<p>{raised}</p>".encode()).source_text.split()) == read


@pytest.mark.parametrize(
    "xml",
    [
        '<w:p><w:r><w:t>10</w:t></w:r><w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>5</w:t></w:r></w:p>',
        '<a:p><a:r><a:t>10</a:t></a:r><a:r><a:rPr lang="en" baseline="30000"/><a:t>5</a:t></a:r></a:p>',
        '<style:style style:name="T1" style:family="text"><style:text-properties style:text-position="super 58%"/>'
        '</style:style><text:p>10<text:span text:style-name="T1">5</text:span></text:p>',
    ],
)
def test_plain_reading_of_office_file_keeps_raised_digits_apart(xml: str) -> None:
    assert text_outside_tags([xml.encode()], "(?!)").split() == ["10", "5"]


def test_import_lists_lost_numbers_by_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = tuple(f"{number:05}" for number in range(7))
    monkeypatch.setattr(
        IsolatedParser, "read", lambda parser, path: ReadFile([prose_document("Pump")], 1.0, ("has no title",), lost)
    )
    (tmp_path / "a.txt").write_text("Pump")
    command = ["import", str(tmp_path / "a.txt"), "--to", str(tmp_path / "data"), "--chunks", "off", "--json"]
    assert cli.main(command) == 0
    console = capsys.readouterr()
    result = json.loads(console.out)
    path = str(tmp_path / "a.txt")
    assert result["numbers"] == {path: [*lost]} and result["notes"] == [{"path": path, "note": "has no title"}]
    assert f"numbers lost: {path} lacks 00000, 00001, 00002, 00003, 00004 and 2 more" in " ".join(console.err.split())


def test_share_kept_counts_repeated_words() -> None:
    assert share_kept("pump pump valve seal", [prose_document("pump valve")]) == 0.5


def test_share_kept_without_words_is_one() -> None:
    assert share_kept("– … –", [prose_document("")]) == 1


def test_share_kept_counts_titles_keys_and_metadata() -> None:
    document = prose_document("starts", title="The pump")
    assert share_kept("The pump starts", [document]) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Pump PUMP ﬁne", {"pump": 2, "fine": 1}),
        ("snake_case a-b 3,5", {"snake": 1, "case": 1, "a": 1, "b": 1, "3": 1, "5": 1}),
        ("ปั๊ม", {"ป": 1, "ม": 1}),
        ("水泵 starts", {"水": 1, "泵": 1, "starts": 1}),
        ("1.5E3 2e-7", {"15": 1, "2e": 1, "7": 1}),
        ("0.12345678901234567890", {"12345678901234568": 1}),
        ("がガ", {"が": 1, "ガ": 1}),
    ],
)
def test_count_words_depends_on_script(text: str, words: dict[str, int]) -> None:
    assert {word: count for word, count in count_words([text]).items() if word.isalnum()} == words


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of two files, of which the parser loses half of one."""
    read = IsolatedParser.read

    def lose(parser: IsolatedParser, path: Path) -> ReadFile:
        content = read(parser, path)
        return ReadFile(content.documents, 0.509, ("has no title",)) if path.name == "half.txt" else content

    monkeypatch.setattr(IsolatedParser, "read", lose)
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "half.txt").write_text("The pump starts.")
    (folder / "whole.txt").write_text("The valve opens.")
    return folder


def run(*arguments: object) -> int:
    return cli.main(["import", *map(str, arguments), "--chunks", "off"])


def test_import_reports_share_of_lost_words(lossy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lossy, "--to", tmp_path / "data", "--json") == 0
    console = capsys.readouterr()
    result: dict[str, Any] = json.loads(console.out)
    path = str(lossy / "half.txt")
    assert result["words"] == {path: 0.509}
    assert result["notes"] == [{"path": path, "note": "has no title"}]
    assert f"words lost: {path} keeps 50 % of its words" in console.err
    assert f"note: {path} has no title" in console.err


def test_strict_import_with_lost_words_writes_nothing(
    lossy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lossy, "--to", tmp_path / "data", "--strict") == 2
    assert "half.txt keeps 50 % of its words; convert it to text, or import without --strict" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_strict_import_of_complete_files_succeeds(lossy: Path, tmp_path: Path) -> None:
    assert run(lossy / "whole.txt", "--to", tmp_path / "data", "--strict") == 0


ACCOUNTING = '_(* #,##0.00_);_(* (#,##0.00);_(* "-"??_);_(@_)'


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (815, "00000", "00815"),
        (2.5, '0.00" bar"', "2.50 bar"),
        (7, '"P-"000', "P-007"),
        (7, "0\\°C", "7°C"),
        (0.15, "0%", "15%"),
        (2.675, "0.00", "2.68"),
        (-0.004, "0.00", "0.00"),
        (5.5, "0.0##", "5.5"),
        (12, "0.##", "12"),
        (12.5, ".00", "12.50"),
        (0, "#", ""),
        (1234567.891, "#,##0.00", "1,234,567.89"),
        (2500000, '0.0,,"M"', "2.5M"),
        (815, "0,000", "0,815"),
        (5551234567, "(000) 000-0000", "(555) 123-4567"),
        (1234.5, "[$€-407] #,##0.00", "€ 1,234.50"),
        (-99.9, "#,##0.00\\ [$€-407];[RED]-#,##0.00\\ [$€-407]", "-99.90 €"),
        (12345.678, "0.00E+00", "1.23E+04"),
        (0.00012, "0.00E-00", "1.20E-04"),
        (12345, "##0.0E+0", "12.3E+3"),
        (9.999, "0.00E+00", "1.00E+01"),
        (2.25, "# ?/?", "2 1/4"),
        (0.5, "# ??/??", "1/2"),
        (3, "# ?/?", "3"),
        (2.25, "# ?/16", "2 4/16"),
        (1e300, "0.00E+00", "1.00E+300"),
    ],
)
def test_numbers_are_shown_in_digits(value: float, code: str, text: str) -> None:
    assert show_number(value, code) == text


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (0, '0;-0;"sold out"', "sold out"),
        (-5, "0.0", "-5.0"),
        (-7, '"P-"000', "-P-007"),
        (-1234.5, "#,##0.00_);(#,##0.00)", "(1,234.50)"),
        (0, ACCOUNTING, "-"),
        (1000, ACCOUNTING, "1,000.00"),
        (5, ";;;", ""),
        (150, '[>100]"high";[<=10]"low";0', "high"),
        (5, '[>100]"high";[<=10]"low";0', "low"),
        (50, '[>100]"high";[<=10]"low";0', "50"),
        (-5, "[>=100]0;0.0", "-5.0"),
        (-5, "[Red][<0]0.0;0", "5.0"),
        (2, "[=0]0;[=1]0", "2"),
    ],
)
def test_section_is_chosen_by_number(value: float, code: str, text: str) -> None:
    assert show_number(value, code) == text


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (45413, "mmm yy", "May 24"),
        (45413.75, "d.m.yyyy h:mm", "1.5.2024 18:00"),
        (45413.75, "dddd, d mmmm yyyy h:mm AM/PM", "Wednesday, 1 May 2024 6:00 PM"),
        (45413, "mmmmm", "M"),
        (0.75, "h:mm:ss A/P", "6:00:00 P"),
        (1.75, "[h]:mm", "42:00"),
        (1.75, "[mm]:ss", "2520:00"),
        (61.5 / 86400, "mm:ss.0", "01:01.5"),
        (45413.7604, "h:mm:ss", "18:14:58"),
        (0.7604, "[h]:mm:ss", "18:14:59"),
        (1, "yyyy-mm-dd", "1900-01-01"),
        (61, "yyyy-mm-dd", "1900-03-01"),
        (5e6, "yyyy", "5000000"),
    ],
)
def test_dates_and_durations_are_shown(value: float, code: str, text: str) -> None:
    assert show_number(value, code) == text


def test_dates_may_be_counted_from_1904() -> None:
    assert show_number(43951, "yyyy-mm-dd", from_1904=True) == "2024-05-01"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (2 / 3, "0.666666666666667"),
        (1.2345e-5, "0.000012345"),
        (1e-5 / 3, "3.33333333333333E-06"),
        (1e-10, "1E-10"),
        (4006381333931, "4006381333931"),
        (1e20, "1E+20"),
        (0, "0"),
    ],
)
def test_general_numbers_have_15_digits(value: float, text: str) -> None:
    assert show_general(value) == show_number(value, "General") == show_number(value, "@") == text


def test_number_is_part_of_general_format() -> None:
    assert show_number(2.5, 'General" pcs"') == "2.5 pcs"


@pytest.mark.parametrize(
    ("code", "text"), [("General", "Ann"), ("0.0", "Ann"), ("@", "Ann"), ('"Dr. "@', "Dr. Ann"), (";;;", "")]
)
def test_texts_have_own_section(code: str, text: str) -> None:
    assert show_text("Ann", code) == text
