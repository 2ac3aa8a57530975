"""The pages of docs/benchmarks are those of the code that writes them; their figures are measured by hand."""

import re
from importlib import import_module
from typing import Any

import pytest

from benchmarks.checkout import ROOT
from benchmarks.page import Page

_TABLES = (
    "calibration",
    "chunks",
    "deploy",
    "drift",
    "evaluators",
    "engines",
    "evidence",
    "gate",
    "ingestion",
    "labels",
    "loop",
    "rag",
    "reliability",
    "serving",
    "traffic",
    "update",
)
MODULES = [
    "benchmarks.generated.__main__",
    "benchmarks.guesses.__main__",
    "benchmarks.llm_queries.__main__",
    "benchmarks.calibration.abstention_tables",
    *(f"benchmarks.{room}.tables" for room in _TABLES),
]


@pytest.mark.parametrize("module", MODULES)
def test_title_introduction_and_sections_are_those_of_the_code(module: str) -> None:
    page: Page[Any] = import_module(module).PAGE
    text = (ROOT / "docs" / "benchmarks" / page.file).read_text(encoding="utf-8")
    assert text.startswith(f"{page.title}\n\n{page.introduction}\n\n## ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [each.HEADING for each in page.sections.values()]


@pytest.mark.parametrize("module", MODULES)
def test_every_section_says_how_to_measure_it_again(module: str) -> None:
    page: Page[Any] = import_module(module).PAGE
    text = (ROOT / "docs" / "benchmarks" / page.file).read_text(encoding="utf-8")
    for name, section in page.sections.items():
        body = text.split(f"\n## {section.HEADING}\n\n")[1]
        assert re.match(rf"\*`(TAUGATE_DATA=… )?python -m {re.escape(page.module)} --tables {name}\b", body), name
