"""Numbers of files as LibreOffice and Chromium show them, which know nothing of the importer, are in its documents."""

import random
from pathlib import Path

import pytest

from benchmarks.ingestion import numbered_files, shown_numbers
from tests.servers import CHROMIUM, require

pytestmark = pytest.mark.slow

_FILES = 3  # of each program; the benchmark of imports makes 40


def _random() -> random.Random:
    return random.Random(1)  # noqa: S311 (no secret is made of it)


def test_numbers_that_libre_office_shows_are_imported(tmp_path: Path) -> None:
    require("soffice")
    writers = [numbered_files.sheet_by_hand, numbered_files.word_by_hand]
    shown = shown_numbers.office_files(tmp_path / "office", _random(), 2 * _FILES, writers)
    assert all(map(shown_numbers.words_with_digit, shown.values()))
    assert {path.name: words for path, text in shown.items() if (words := shown_numbers.missing(path, text))} == {}


def test_numbers_that_browser_shows_are_imported(tmp_path: Path) -> None:
    require(*CHROMIUM)
    pages = shown_numbers.pages(tmp_path / "pages", _random(), _FILES, [numbered_files.page_by_hand])
    mails = shown_numbers.mails(tmp_path / "mails", _random(), _FILES)
    assert all(map(shown_numbers.words_with_digit, (pages | mails).values()))
    assert {
        path.name: words for path, text in (pages | mails).items() if (words := shown_numbers.missing(path, text))
    } == {}
