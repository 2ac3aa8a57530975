"""Delimited text of any program: texts are read exactly, and irregular rows are noted."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from import_tests.kept import complete
from taugate.data.parsed import ParsedFile, UnreadableFile
from taugate.retrieval.documents.store import Scalar
from taugate_import.delimited import parse_delimited, typed_column

TEXTS = [
    'The rings, known as "seals", are kept in the drawer; the "old" ones, too.',
    "It's the crew's task: close valve 7 | valve 8, don't wait.",
    "First line,\nsecond line; third.\n\nA paragraph\twith a tab.",
    'Set the path to C:\\pumps\\new or "D:\\x", then wait.',
    '"Quoted as a whole"',
    "Plain words and no more",
    "Seals cost 3,50 a piece, rings a little less.",
]
Rows = Sequence[Sequence[str]]


def _csv(**options: Any) -> Callable[[Rows], str]:
    def write(rows: Rows) -> str:
        file = io.StringIO(newline="")
        csv.writer(file, **options).writerows(rows)
        return file.getvalue()

    return write


def _translated(escapes: dict[str, str]) -> Callable[[Rows], str]:
    return lambda rows: "".join(
        "\t".join(cell.translate(str.maketrans(escapes)) for cell in row) + "\n" for row in rows
    )


WRITERS: dict[str, Callable[[Rows], str]] = {
    "comma": _csv(),
    "comma, all quoted": _csv(quoting=csv.QUOTE_ALL),
    "semicolon": _csv(delimiter=";"),
    "semicolon, all quoted": _csv(delimiter=";", quoting=csv.QUOTE_ALL),
    "tab": _csv(delimiter="\t"),
    "pipe": _csv(delimiter="|", lineterminator="\n"),
    "quotes escaped": _csv(doublequote=False, escapechar="\\"),
    "no quotes, escapes": _csv(quoting=csv.QUOTE_NONE, escapechar="\\"),
    "tab, no quotes, escapes": _csv(delimiter="\t", quoting=csv.QUOTE_NONE, escapechar="\\"),
    "single quotes": _csv(quotechar="'"),
    "all in single quotes": _csv(quotechar="'", quoting=csv.QUOTE_ALL),
    "PostgreSQL": _translated({"\\": "\\\\", "\n": "\\n", "\t": "\\t"}),
    "MySQL": _translated({"\\": "\\\\", "\n": "\\\n", "\t": "\\\t"}),
}


def words(texts: Sequence[str]) -> list[str]:
    """Return texts with single spaces between their words."""
    return [" ".join(text.split()) for text in texts]


def parse(text: str | bytes) -> ParsedFile:
    """Parse a file, and check that none of its words is lost."""
    return complete(parse_delimited(text if isinstance(text, bytes) else text.encode()))


def texts_of(parsed: ParsedFile) -> list[str]:
    """Return the texts of a file's documents."""
    return [document.text for document in parsed.documents]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("shift", range(len(TEXTS)))
@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_texts_of_any_dialect_read_exactly(writer: str, shift: int, count: int) -> None:
    texts = (TEXTS[shift:] + TEXTS[:shift])[:count]
    for rows, column in (
        ([["id", "text"], *([f"p{number}", text] for number, text in enumerate(texts))], 1),
        ([["text", "price", "label"], *([text, "3.5", "a"] for text in texts)], 0),
    ):
        written = WRITERS[writer](rows)
        if '"Quoted as a whole"' in written and written.count('"') == 2:
            continue  # no reader can tell whether these quotes are content
        parsed = parse_delimited(written.encode())
        assert words(texts_of(parsed)) == words([row[column] for row in rows[1:]])


@pytest.mark.parametrize("writer", [*WRITERS][:9])
@pytest.mark.parametrize("shift", range(len(TEXTS)))
def test_texts_of_one_column_read_exactly(writer: str, shift: int) -> None:
    texts = TEXTS[shift:] + TEXTS[:shift]
    parsed = parse_delimited(WRITERS[writer]([["text"], *([text] for text in texts)]).encode())
    assert words(texts_of(parsed)) == words(texts)


def test_quotes_in_unquoted_tsv_are_content() -> None:
    parsed = parse('id\ttext\n1\t"Hello" he said.\n2\tHe said "no\n3\t"Whole"\n')
    assert texts_of(parsed) == ['"Hello" he said.', 'He said "no', '"Whole"']


def test_multiline_field_resembling_rows_kept() -> None:
    for text in (
        'id,text\n1,"Line one\nline two, more"\n2,Bye\n',
        '"id";"text"\n"1";"Line one\nline two; more"\n"2";"Bye"\n',
    ):
        assert texts_of(parse(text))[0].startswith("Line one\nline two")


def test_stray_quotes_join_no_rows() -> None:
    assert texts_of(parse('id\ttext\n1\t"Hello there\n2\tworld"\n3\tBye\n')) == ['"Hello there', 'world"', "Bye"]


@pytest.mark.parametrize(
    ("raw", "texts"),
    [
        ("sep=;\nid;text\n1;Hello, world\n2;Bye\n", ["Hello, world", "Bye"]),
        ('id\ttext\r\n1\t"He said ""no"""\r\n2\tPlain\r\n'.encode("utf-16"), ['He said "no"', "Plain"]),
        ("\ufeffid,text\n1,hello\n", ["hello"]),
        (b'id,text\r1,"Hello, x"\r2,Bye\r', ["Hello, x", "Bye"]),
        ("id,text,\n1,hello,\n2,bye,\n", ["hello", "bye"]),
        ("id,text\n1,hello,\n2,bye,\n", ["hello", "bye"]),
        ('id, text\n1, "Hello, world"\n2, "Bye, now"\n', ["Hello, world", "Bye, now"]),
        ("id,text\n\n1,a\n\n\n2,b\n,,\n", ["a", "b"]),
        ('id,text\n1,"' + "word, " * 200_000 + 'end"\n2,b\n', ["word, " * 200_000 + "end", "b"]),
        ("text\nHello, world, one\nGood, bye, two\n", ["Hello, world, one", "Good, bye, two"]),
        (
            'Comment\n"Nice; but slow"\n"Very ""good"", really"\n',
            ["Comment: Nice; but slow", 'Comment: Very "good", really'],
        ),
        ("| part | days |\n| --- | --- |\n| seal | 30 |\n", ["part:  seal \ndays:  30"]),
    ],
    ids=[
        "sep",
        "utf-16",
        "mark",
        "cr",
        "trailing",
        "trailing in rows",
        "spaces",
        "blank",
        "long",
        "one",
        "quoted",
        "drawn",
    ],
)
def test_rare_forms_of_delimited_text_read(raw: str | bytes, texts: list[str]) -> None:
    assert texts_of(parse(raw)) == texts


@pytest.mark.parametrize("above", ["Price list 2024\n\n", "Price list 2024,,\n,,\n", "# Price list 2024\n"])
def test_lines_above_header_become_title(above: str) -> None:
    first, second = parse(f"{above}name,price,text\nPump,3.50,It starts.\nSeal,4.00,Replace it.\n").documents
    assert (first.text, first.title.lstrip("# ")) == ("It starts.", "Price list 2024")
    assert second.metadata == {"name": "Seal", "price": 4.0}


def test_long_lines_above_header_become_document() -> None:
    above = "This file was exported for the crew. " * 10
    documents = parse(f"{above}\n\nid,text\np1,Hello\np2,Bye\n").documents
    assert [(document.key, document.title) for document in documents] == [("p1", ""), ("p2", ""), ("0", "")]
    assert documents[2].text == above.strip()


def test_irregular_rows_noted_and_keep_words() -> None:
    parsed = parse("id,text,price\n1,hello,3.5\n2,Hello, world,4.5\n3,short\n4,ok,5.5\n5,more,6\n")
    assert parsed.notes == ("2 rows have another number of fields than the header: lines 3, 4",)
    assert texts_of(parsed) == ["hello", "Hello, world", "short", "ok", "more"]
    assert [document.metadata.get("price") for document in parsed.documents] == [3.5, 4.5, None, 5.5, 6.0]


def test_unclosed_quote_damages_only_its_row() -> None:
    parsed = parse('id,text\n1,"Hello, world\n2,"Fine, this"\n3,plain\n4,"Last,\none"\n')
    assert texts_of(parsed) == ["Hello, world", "Fine, this", "plain", "Last,\none"]
    assert parsed.notes == ("1 row has quotes that do not match: line 2",)


def test_table_without_header_keeps_its_first_row() -> None:
    parsed = parse("0\tThe presence of communication was important.\n7\tThe atomic bomb helped to end it.\n")
    assert [document.key for document in parsed.documents] == ["0", "7"]
    assert texts_of(parsed) == ["The presence of communication was important.", "The atomic bomb helped to end it."]
    assert parsed.notes == ("has no row that names its columns; column 1 is the id, and column 2 the text",)


def test_unnamed_and_equal_columns_kept_apart() -> None:
    parsed = parse("name,name,\na,b,c\nd,e,f\n")
    assert texts_of(parsed) == ["name: a\nname_: b\n_: c", "name: d\nname_: e\n_: f"]
    assert parsed.notes == ("has several columns named name",)


def test_header_of_questions_or_years_recognized() -> None:
    (survey, _) = parse(
        "Time,How did you like it here?\nMay,Very much indeed it was.\nJune,Not at all, no.\n"
    ).documents
    assert survey.text.startswith("Time: May\nHow did you like it here?: Very")
    (years,) = parse("country,2019,2020\nGermany,3,4\n").documents
    assert years.metadata == {"country": "Germany", "2019": 3, "2020": 4}


def test_repeated_ids_are_metadata() -> None:
    documents = parse("id,text\na,One\na,Two\n").documents
    assert [(document.key, document.metadata["id"]) for document in documents] == [("1", "a"), ("2", "a")]


@pytest.mark.parametrize("text", ["id,text\n", "text\n", " \n\n"])
def test_header_without_rows_is_refused(text: str) -> None:
    with pytest.raises(UnreadableFile):
        parse_delimited(text.encode())


def test_thousands_of_columns_are_read() -> None:
    names = [f"c{number}" for number in range(3000)]
    (document,) = parse(f"{','.join(names)}\n{','.join('v' for _ in names)}\n").documents
    assert document.text.count(": v") == 3000 and document.metadata == {}


def test_question_in_first_row_is_data() -> None:
    parsed = parse('How do I reset it?,Hold the key for five seconds.\nWho reads it?,"The company, once a year."\n')
    first, second = texts_of(parsed)
    assert first == "How do I reset it?\nHold the key for five seconds."
    assert second == "Who reads it?\nThe company, once a year."
    (short, _) = texts_of(parse("Who?,Ann.\nWhere is it kept?,There.\n"))
    assert short == "Who?\nAnn."


def test_unusual_numbers_lose_no_words() -> None:
    (small, _) = parse("id,text,v\n1,Pump,1.5e-3\n2,Valve,0.12345678901234567890\n").documents
    assert small.metadata == {"v": 0.0015}


def test_line_below_the_table_kept() -> None:
    parsed = parse("id | text\n----+------\n1 | Hello\n2 | Bye\n(2 rows)\n")
    assert [text.strip() for text in texts_of(parsed)] == ["Hello", "Bye", "(2 rows)"]


@pytest.mark.parametrize(
    ("values", "typed"),
    [
        (["1", "-20", ""], [1, -20, None]),
        (["14.17", "26", ".5", "NaN"], [14.17, 26.0, 0.5, None]),
        (["1e-05", "2.5E+3"], [1e-05, 2500.0]),
        (["3,50", "12"], [3.5, 12.0]),
        (["true", "FALSE"], [True, False]),
        (["2024-05-06", "NULL"], ["2024-05-06", None]),
        (["2024-05-06 07:08:09", "2024-05-06T7:08"], ["2024-05-06T07:08:09", "2024-05-06T07:08"]),
        (["2024/5/6", "2024/12/31"], ["2024-05-06", "2024-12-31"]),
        (["5.6.2024", "31.12.2024"], ["2024-06-05", "2024-12-31"]),
        (["12/31/2024", "01/02/2024"], ["2024-12-31", "2024-01-02"]),
        (["31/12/2024", "01/02/2024"], ["2024-12-31", "2024-02-01"]),
    ],
)
def test_uniform_column_is_typed(values: list[str], typed: list[Scalar]) -> None:
    results = typed_column(values)
    assert results is not None and results == (typed, None)
    assert [type(value) for value in results[0]] == [type(value) for value in typed]


@pytest.mark.parametrize(
    "values",
    [
        ["01234", "90210"],
        ["+49 30 1", "+49 30 2"],
        ["1", "x"],
        ["3%", "4%"],
        ["$3", "$4"],
        ["1E5", "2E5"],
        ["inf", "1"],
        ["1234567890123456789", "1"],
        ["", ""],
        ["2024-02-30", "2024-02-01"],
        ["31.12.24", "1.2.24"],
        ["yes", "no"],
    ],
)
def test_mixed_column_remains_text(values: list[str]) -> None:
    assert typed_column(values) is None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["01/02/2024", "03/04/2024"], "01/02/2024 may begin with the day or with the month"),
        (["1,234", "12,500"], "1,234 may be a number of thousands or a decimal"),
    ],
)
def test_ambiguous_column_remains_text_with_reason(values: list[str], reason: str) -> None:
    assert typed_column(values) == (values, reason)


def test_typed_cells_are_shown_as_written() -> None:
    parsed = parse_delimited(b"name;price;on\nPump;3,50;5.6.2024\nSeal;12,00;31.12.2024\n")
    assert parsed.documents[0].text == "name: Pump\nprice: 3,50\non: 5.6.2024"
    assert parsed.documents[0].metadata == {"name": "Pump", "price": 3.5, "on": "2024-06-05"}


def test_ambiguous_column_is_noted() -> None:
    parsed = parse_delimited(b"text,on\na,01/02/2024\nb,03/04/2024\n")
    assert parsed.notes == ("keeps the column on as text: 01/02/2024 may begin with the day or with the month",)
    assert parsed.documents[0].metadata == {"on": "01/02/2024"}
