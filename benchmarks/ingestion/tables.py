"""Every table of benchmarks/results/import.md, by one command. Needs taugate-import and the extra sample, and 1 GiB of disk.

The section on numbers needs LibreOffice, Chromium, pandoc, and the packages openpyxl, python-docx and sphinx.
"""

import shutil
import tempfile
from pathlib import Path

from benchmarks.ingestion import mutated_files, mutated_office, odd_files, shown_numbers
from benchmarks.ingestion.plan import ImportPlan
from benchmarks.page import Option, Page

PAGE = Page[ImportPlan](
    file="import.md",
    module="benchmarks.ingestion.tables",
    title="# Import",
    introduction="""\
`taugate import` reads what may be left in a folder. This page shows what it makes of files that are empty, cut, garbled, misnamed,
enormous or nested, and of links, pipes and bombs. It shows whether texts of damaged records and office files are lost in
silence. The line under each heading repeats the measurement.""",
    sections={"odd": odd_files, "mutated": mutated_files, "office": mutated_office, "numbers": shown_numbers},
    options=[
        Option("files", 1000, "odd files", ["odd"]),
        Option("seed", 5, "of what is garbled, sampled or drawn"),
        Option("mutated-files", 200, "damaged files of a kind", ["mutated", "office"]),
        Option("shown-files", 40, "files of numbers by each program", ["numbers"]),
    ],
    needs_data=("mutated", "office"),
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    for name in arguments.tables:
        work = Path(tempfile.mkdtemp(prefix="taugate-import-"))
        try:
            PAGE.measure(name, ImportPlan(work, **PAGE.numbers(arguments)), arguments)
        finally:
            closed = work / "source" / "closed"
            if closed.exists():
                closed.chmod(0o700)
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
