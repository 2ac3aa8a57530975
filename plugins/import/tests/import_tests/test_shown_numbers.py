"""Words with a digit that a file shows and the corpus lacks are listed, and other readings of them are not."""

import dataclasses
import json
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.data.parsed import prose_document
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.html import parse_html
from taugate_import.office_package import text_outside_tags
from taugate_import.parse import IsolatedParser, ReadFile
from taugate_import.word_share import lost_numbers


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
