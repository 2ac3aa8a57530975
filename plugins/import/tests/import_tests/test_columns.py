"""Columns of numbers, dates or booleans, and columns that only look like them."""

import pytest

from taugate.retrieval.documents.store import Scalar
from taugate_import.delimited import parse_delimited, typed_column


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
