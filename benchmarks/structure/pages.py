"""Compares pages with the modules that measure them: title, introduction, sections, commands.

`python -m benchmarks.structure.pages` prints what differs, and ends with 1 if anything does; `--write` writes titles and
introductions from the modules, and leaves sections as they are.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from benchmarks.page import Page

_MODULES = (
    "calibration.abstention_tables", "calibration.tables", "drift.tables", "engines.tables", "evaluators.tables",
    "evidence.tables", "gate.tables", "guesses.__main__", "hybrid.tables", "ingestion.tables", "labels.tables",
    "loop.tables", "papers.tables", "reliability.tables", "serving.tables", "update.tables",
)  # fmt: skip


def main() -> int:
    """Compare or write the pages; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write titles and introductions")
    arguments = parser.parse_args()
    pages: list[Page[Any]] = [import_module(f"benchmarks.{name}").PAGE for name in _MODULES]
    if arguments.write:
        for page in pages:
            _, heading, sections = page.path.read_text(encoding="utf-8").partition("\n## ")
            page.path.write_text(f"{page.title}\n\n{page.introduction}\n{heading}{sections}", encoding="utf-8")
    differences = [f"{page.folder}/{page.file}: {line}" for page in pages for line in _differences(page)]
    sys.stdout.write("".join(f"{line}\n" for line in differences))
    return int(bool(differences))


def _differences(page: Page[Any]) -> Iterator[str]:
    text = page.path.read_text(encoding="utf-8")
    if not text.startswith(f"{page.title}\n\n{page.introduction}\n\n## "):
        yield "title or introduction differs; run with --write"
    headings = [section.HEADING for section in page.sections.values()]
    if re.findall(r"^## (.+)$", text, re.MULTILINE) != headings:
        yield f"the sections should be {headings}"
    for name, section in page.sections.items():
        _, _, body = text.partition(f"\n## {section.HEADING}\n\n")
        if not re.match(rf"\*`(TAUGATE_DATA=… )?python -m {re.escape(page.module)} --tables {name}\b", body):
            yield f"{section.HEADING}: has no command that repeats the measurement"


if __name__ == "__main__":
    sys.exit(main())
