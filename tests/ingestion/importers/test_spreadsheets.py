"""Spreadsheets as records: sheets, tables, values, comments and drawings, damage."""

import pytest

from taugate.ingestion.importers.shown_numbers import lost_numbers
from taugate.ingestion.importers.spreadsheets import parse_spreadsheet
from taugate.ingestion.importers.word_share import share_kept
from taugate.ingestion.parsed import ParsedDocument, UnreadableFile
from tests.ingestion.importers.office_files import archive, part, rows, xlsx

PUMPS = rows(["id", "name", "bars"], ["P1", "Mill Street", 20.5], ["P2", "Harbour", 30])


def read(raw: bytes) -> dict[str, ParsedDocument]:
    """Return the documents of a spreadsheet by key, after a check that it keeps the words of the file."""
    parsed = parse_spreadsheet(raw)
    assert share_kept(parsed.source_text, parsed.documents, parsed.left_out) >= 0.98
    assert not lost_numbers(parsed.source_text, parsed.documents, parsed.left_out)
    return {document.key: document for document in parsed.documents}


def test_rows_of_only_sheet_are_records() -> None:
    documents = read(xlsx({"Sheet1": PUMPS}))
    assert list(documents) == ["P1", "P2"]
    assert documents["P1"].metadata == {"name": "Mill Street", "bars": 20.5} and documents["P1"].title == ""
    assert documents["P2"].text == "name: Harbour\nbars: 30"


def test_hidden_sheets_read_with_names() -> None:
    care = rows(["part", "days"], ["seal", 30])
    documents = read(xlsx({"Pumps": PUMPS, "Care": care}, hidden="Care"))
    assert {key: document.title for key, document in documents.items()} == {
        "Pumps/P1": "Pumps",
        "Pumps/P2": "Pumps",
        "Care/1": "Care",
    }


def test_cell_values_of_each_kind_read() -> None:
    cells = rows(
        ["text", "checked", "share", "sum", "done"],
        [
            '<c t="s"><v>0</v></c>',
            '<c s="1"><v>45413</v></c>',
            '<c s="2"><v>0.25</v></c>',
            "<c><f>1+1</f><v>2</v></c>",
            '<c t="b"><v>1</v></c>',
        ],
    )
    strings = "<si><r><t xml:space='preserve'>Bold </t></r><r><t>words</t></r></si><si><t>Unused words</t></si>"
    document = parse_spreadsheet(xlsx({"Sheet1": cells}, strings)).documents[0]
    assert document.text == "Bold words"
    assert document.metadata == {"checked": "2024-05-01", "share": 0.25, "sum": 2, "done": True}


def test_unused_shared_string_counts_as_lost() -> None:
    parsed = parse_spreadsheet(xlsx({"Sheet1": PUMPS}, "<si><t>words whose cell is damaged</t></si>"))
    assert share_kept(parsed.source_text, parsed.documents, parsed.left_out) < 0.98


def test_damaged_shared_strings_count_as_lost() -> None:
    damaged = "<si><t>Mill Street</t>words outside of their string</si>"
    cells = rows(["name", "bars"], ['<c t="s"><v>0</v></c>', 20])
    parsed = parse_spreadsheet(xlsx({"Sheet1": cells}, damaged))
    assert share_kept(parsed.source_text, parsed.documents, parsed.left_out) < 0.98


def test_word_in_two_formats_is_one_word() -> None:
    strings = "<si><r><t>Rot</t></r><r><t>ation</t></r></si>"
    cells = rows(["name", "bars"], ['<c t="s"><v>0</v></c>', 20])
    assert read(xlsx({"Sheet1": cells}, strings))["1"].metadata["name"] == "Rotation"


def test_formulas_without_value_are_noted() -> None:
    cells = rows(["name", "sum"], ["Seal", "<c><f>1+1</f><v></v></c>"], ["Ring", "<c><f>2+2</f></c>"])
    notes = parse_spreadsheet(xlsx({"Sheet1": cells})).notes
    assert notes == ("has 2 formulas without a value; save it once in a spreadsheet program",)


def test_tables_of_sheet_have_own_columns() -> None:
    cells = rows(
        ["List of pumps"], [], ["name", "bars"], ["Mill", 20], [], ["Harbour", 30], [], ["part", "days", "note"],
        ["seal", 30, "brass"],
    )  # fmt: skip
    documents = read(xlsx({"Sheet1": cells}))
    assert {key: (document.title, document.text) for key, document in documents.items()} == {
        "table 1/1": ("List of pumps", "name: Mill\nbars: 20"),
        "table 1/2": ("List of pumps", "name: Harbour\nbars: 30"),
        "table 2/1": ("", "part: seal\ndays: 30\nnote: brass"),
    }


def test_vertically_merged_cells_fill_each_row() -> None:
    cells = rows(["region", "city"], ["North", "Oslo"], [None, "Bergen"])
    merged = f'{cells}<mergeCells count="1"><mergeCell ref="A2:A3"/></mergeCells>'
    assert [document.text for document in read(xlsx({"Sheet1": merged})).values()] == [
        "region: North\ncity: Oslo",
        "region: North\ncity: Bergen",
    ]


def test_sheet_without_table_is_one_document() -> None:
    documents = read(xlsx({"Pumps": PUMPS, "Note": rows(["Call the waterworks first."])}))
    assert documents["Note/1"].text == "Call the waterworks first."


def test_comments_and_drawings_are_another_document() -> None:
    comment = "<authors><author>Ada</author></authors><comment><text><r><t>Bearing is loud</t></r></text></comment>"
    parts = {
        "xl/comments1.xml": part("comments", comment),
        "xl/drawings/drawing1.xml": part("drawing", "<a:p><a:r><a:t>See the plan</a:t></a:r></a:p>"),
    }
    assert read(xlsx({"Sheet1": PUMPS}, parts=parts))["comments"].text == "Bearing is loud\n\nSee the plan"


def test_long_sheet_is_read_completely() -> None:
    cells = rows(["name", "number"], *([f"pump{number}", number] for number in range(5000)))
    documents = read(xlsx({"Sheet1": cells}))
    assert len(documents) == 5000 and documents["5000"].text == "name: pump4999\nnumber: 4999"


def test_distant_cell_is_refused_early() -> None:
    far = '<row r="1048576"><c r="XFD1048576" t="inlineStr"><is><t>far</t></is></c></row></sheetData>'
    with pytest.raises(UnreadableFile, match="has 1048576 rows and 16384 columns, most of them empty"):
        parse_spreadsheet(xlsx({"Sheet1": PUMPS.replace("</sheetData>", far)}))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (xlsx({"Sheet1": PUMPS})[:-30], "is not a spreadsheet, or is damaged"),
        (archive({"a.txt": "text"}), "is not a spreadsheet, or is damaged"),
        (b"no zip archive at all", "is not a spreadsheet, or is damaged"),
        (xlsx({"Sheet1": "<sheetData/>"}), "holds no text"),
    ],
)
def test_damaged_spreadsheet_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(UnreadableFile, match=message):
        parse_spreadsheet(raw)
