"""Spreadsheets as records: sheets, tables, values, comments and drawings, damage."""

import pytest

from import_tests.kept import complete
from import_tests.office_files import archive, open_document_sheet, part, rows, styles, xlsx
from taugate.data.parsed import ParsedDocument, UnreadableFile
from taugate_import.spreadsheets import parse_spreadsheet
from taugate_import.word_share import share_kept

PUMPS = rows(["id", "name", "bars"], ["P1", "Mill Street", 20.5], ["P2", "Harbour", 30])


def read(raw: bytes) -> dict[str, ParsedDocument]:
    """Return the documents of a spreadsheet by key, after a check that it keeps the words of the file."""
    parsed = complete(parse_spreadsheet(raw), 0.98)
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
    assert document.text == "Bold words\n\nshare: 25%"
    assert document.metadata == {"checked": "2024-05-01", "share": 0.25, "sum": 2, "done": True}


def test_cells_are_shown_by_their_formats() -> None:
    formats = ["00000", '0.00" bar"', "[h]:mm", '0;-0;"sold out"', ";;;", '"Dr. "@', "mmm yy"]
    cells = rows(
        ["code", "pressure", "time", "stock", "secret", "name", "month"],
        [
            *(f'<c s="{style}"><v>{value}</v></c>' for style, value in enumerate([815, 2.5, 1.75, 0, 5], start=1)),
            '<c t="str" s="6"><v>Ann</v></c>',
            '<c s="7"><v>45413</v></c>',
        ],
    )
    (document,) = read(xlsx({"Sheet1": cells}, parts={"xl/styles.xml": styles(formats)})).values()
    assert document.text.split("\n") == [
        "code: 00815",
        "pressure: 2.50 bar",
        "time: 42:00",
        "stock: sold out",
        "name: Dr. Ann",
        "month: May 24",
    ]
    numbers = {"code": 815, "pressure": 2.5, "time": "42:00", "stock": 0, "secret": 5}
    assert document.metadata == {**numbers, "name": "Dr. Ann", "month": "2024-05-01"}


def test_formatted_cells_beside_text_are_text() -> None:
    cells = rows(["id", "text", "code", "price"], ['<c s="1"><v>7</v></c>', "A pump", '<c s="1"><v>815</v></c>', 2.5])
    (document,) = read(xlsx({"Sheet1": cells}, parts={"xl/styles.xml": styles(["00000"])})).values()
    assert (document.key, document.text) == ("00007", "A pump\n\ncode: 00815")
    assert document.metadata == {"code": 815, "price": 2.5}


def test_numbers_keep_15_digits() -> None:
    cells = rows(["name", "dose"], ["Resin", 0.1 + 0.2], ["Hardener", 12.100000000000001])
    documents = read(xlsx({"Sheet1": cells}))
    assert [(document.text, document.metadata["dose"]) for document in documents.values()] == [
        ("name: Resin\ndose: 0.3", 0.3),
        ("name: Hardener\ndose: 12.1", 12.1),
    ]


def test_booleans_and_errors_are_shown() -> None:
    cells = rows(["name", "done", "share"], ["Seal", '<c t="b"><v>1</v></c>', '<c t="e"><v>#DIV/0!</v></c>'])
    (document,) = read(xlsx({"Sheet1": cells})).values()
    assert document.text == "name: Seal\ndone: TRUE\nshare: #DIV/0!"
    assert document.metadata == {"name": "Seal", "done": True}


def test_cells_without_place_follow_one_another() -> None:
    cells = "<sheetData><row><c t='str'><v>name</v></c><c t='str'><v>code</v></c></row><row><c t='str'><v>Seal</v></c>"
    cells += "<c s='1'><v>7</v></c></row></sheetData>"
    assert read(xlsx({"Sheet1": cells}, parts={"xl/styles.xml": styles(["000"])}))["1"].text == "name: Seal\ncode: 007"


def merge(cells: str, *areas: str) -> str:
    """Return rows of a sheet with merged cells."""
    merged = "".join(f'<mergeCell ref="{area}"/>' for area in areas)
    return f"{cells}<mergeCells>{merged}</mergeCells>"


TWO_ROWS = rows(
    ["Model", "Pressure", None, "Flow"], [None, "lowest", "highest", "litres"], ["P1", 1, 5, 30], ["P2", 2, 6, 40]
)
THREE_ROWS = rows(
    ["Prices"], ["Model", "Sales"], [None, "North", None, "South"], [None, 2023, 2024, 2023, 2024], ["P1", 1, 2, 3, 4]
)
GROUPS_ABOVE = rows([None, "Pressure"], ["Model", "lowest", "highest"], ["P1", 1, 5])


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        (merge(TWO_ROWS, "B1:C1", "A1:A2"), "Model: P1\nPressure lowest: 1\nPressure highest: 5\nFlow litres: 30"),
        (merge(TWO_ROWS, "B1:C1"), "Model: P1\nPressure lowest: 1\nPressure highest: 5\nFlow litres: 30"),
        (
            merge(THREE_ROWS, "A1:E1", "A2:A4", "B2:E2", "B3:C3", "D3:E3"),
            "Model: P1\nSales North 2023: 1\nSales North 2024: 2\nSales South 2023: 3\nSales South 2024: 4",
        ),
        (merge(GROUPS_ABOVE, "B1:C1"), "Model: P1\nPressure lowest: 1\nPressure highest: 5"),
        (merge(rows(["Model", "Flow"], [None, "l/min"], ["P1", 30], ["P2", 40]), "A1:A2"), "Model: P1\nFlow l/min: 30"),
    ],
)
def test_header_rows_with_merged_cells_are_joined(cells: str, text: str) -> None:
    assert read(xlsx({"Sheet1": cells}))["1"].text == text


@pytest.mark.parametrize(
    "cells",
    [
        merge(rows(["Model", "Address"], ["P1", "Mill Street", "Oslo"], ["P2", "Harbour", "Bergen"]), "B1:C1"),
        merge(rows(["Pumps of 2024"], ["Model", "City"], ["P1", "Oslo"], ["P2", "Bergen"]), "A1:B1"),
    ],
)
def test_rows_below_merged_cells_stay_rows(cells: str) -> None:
    documents = read(xlsx({"Sheet1": cells}))
    assert [document.text.split("\n")[0] for document in documents.values()] == ["Model: P1", "Model: P2"]


def test_months_name_columns_of_numbers() -> None:
    cells = rows(["Region", '<c s="1"><v>45413</v></c>', '<c s="1"><v>45444</v></c>'], ["North", 5, 6], ["South", 7, 8])
    documents = read(xlsx({"Sheet1": cells}, parts={"xl/styles.xml": styles(["mmm yy"])}))
    assert documents["1"].text == "Region: North\nMay 24: 5\nJun 24: 6"


def test_open_document_cells_show_text_of_file() -> None:
    header = '<cell rows="2">Model</cell><cell columns="2">Size</cell><covered/>'
    below = "<covered/><cell>low</cell><cell>high</cell>"
    values = (
        '<cell kind="float" office:value="815">00815</cell><cell kind="percentage" office:value="0.15">15 %</cell>'
        '<cell kind="time" office:time-value="PT42H00M00S">42:00</cell>'
    )
    (document,) = read(open_document_sheet(header, below, values)).values()
    assert document.text == "Model: 00815\nSize low: 15 %\nSize high: 42:00"
    assert document.metadata == {"Model": 815, "Size low": 0.15, "Size high": "42:00"}


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
