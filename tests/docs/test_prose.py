"""The prose of README and docs: spelling, grammar, the length of sentences, and how easy they are to read.

`make prose` runs this. A word that is right goes into dictionary.txt, a rule that does not fit into prose.toml.
"""

import tomllib
from pathlib import Path

import pytest

from tests.docs.prose import HERE, findings, reading_ease

ROOT = HERE.parents[1]
DOCS = ROOT / "docs"
RULES = tomllib.loads((HERE / "prose.toml").read_text(encoding="utf-8"))
# Pages of benchmarks are tables, with a line or two around each.
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if path.parent.name != "benchmarks"]
PAGES += [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md") if path.exists()]
# What a reader meets first.
FIRST = [ROOT / "README.md", DOCS / "index.md", *sorted((DOCS / "tutorial").glob("*.md"))]
FIRST += sorted((DOCS / "how-to").glob("*.md"))
# Sentences of more than 40 words are an error on these pages.
SHORT_SENTENCES = [*FIRST, DOCS / "architecture.md", DOCS / "glossary.md", DOCS / "runbooks" / "index.md"]
PLAIN, READABLE = 60, 50  # Flesch's scale: plain English, fairly difficult


def test_spelling_and_grammar() -> None:
    ignored = [*RULES["style"], *RULES["mistaken"], "LongSentences"]
    assert [f"{each.page}:{each.line}: {each.message}" for each in findings(PAGES, ignored)] == []


def test_no_sentence_is_long() -> None:
    found = findings(SHORT_SENTENCES, [])
    assert [f"{each.page}:{each.line}: {each.message}" for each in found if each.rule == "LongSentences"] == []


def test_mistakes_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\nThis are an test of the serivce, and it it should of failed.\n", encoding="utf-8")
    found = findings([page], [*RULES["style"], *RULES["mistaken"]])
    assert {"SpellCheck", "AnA"} <= {each.rule for each in found}


@pytest.mark.parametrize("page", FIRST, ids=lambda page: page.stem)
def test_what_is_read_first_is_plain_english(page: Path) -> None:
    assert reading_ease(page.read_text(encoding="utf-8")) >= PLAIN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_is_readable(page: Path) -> None:
    if page.name != "python.md":  # docstrings, and a few lines
        assert reading_ease(page.read_text(encoding="utf-8")) >= READABLE


def test_a_hard_text_is_told_from_an_easy_one() -> None:
    easy = "The service answers. It drops what is weak. You can read why."
    hard = "Notwithstanding considerable dimensionality, calibration methodology necessitates statistical verification."
    assert reading_ease(easy) > 80 > READABLE > reading_ease(hard)
