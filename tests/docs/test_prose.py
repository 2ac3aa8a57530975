"""The prose of README and docs: spelling, grammar, length of sentences and reading ease.

`make prose` runs this. Add correct words to dictionary.txt, and rules that do not suit these pages to prose.toml.
"""

import tomllib
from pathlib import Path

import pytest

from tests.docs.prose import DOCS, FIRST, HERE, ROOT, SHORT_SENTENCES, findings, long_sentences, reading_ease

RULES = tomllib.loads((HERE / "prose.toml").read_text(encoding="utf-8"))
PAGES = sorted(DOCS.rglob("*.md"))
PAGES += [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md") if path.exists()]
PLAIN, READABLE = 60, 50  # Flesch's scale: plain English, fairly difficult


def test_spelling_and_grammar() -> None:
    ignored = [*RULES["style"], *RULES["mistaken"], "LongSentences"]
    assert [f"{finding.page}:{finding.line}: {finding.message}" for finding in findings(PAGES, ignored)] == []


def test_sentences_are_short() -> None:
    assert long_sentences(SHORT_SENTENCES) == []


def test_long_sentence_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\nIt is short. The service{' and the word' * 14} end.\n", encoding="utf-8")
    assert long_sentences([page]) == ["page.md:3: This sentence is 45 words long."]


def test_checker_finds_mistakes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\nThis are an test of the serivce, and it it should of failed.\n", encoding="utf-8")
    remarks = findings([page], [*RULES["style"], *RULES["mistaken"]])
    assert {"SpellCheck", "AnA"} <= {remark.rule for remark in remarks}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "python.md"], ids=lambda page: page.stem)
def test_page_is_readable(page: Path) -> None:
    assert reading_ease(page.read_text(encoding="utf-8")) >= (PLAIN if page in FIRST else READABLE)


def test_reading_ease_separates_texts() -> None:
    easy = "The service answers. It drops what is weak. You can read why."
    hard = "Notwithstanding considerable dimensionality, calibration methodology necessitates statistical verification."
    assert reading_ease(easy) > 80 > READABLE > reading_ease(hard)
