"""Number formats of spreadsheets, against what Excel and LibreOffice show."""

import pytest

from taugate_import.sheet_cells import show_general, show_number, show_text

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
