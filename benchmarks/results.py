"""Results as JSON: every section that is measured, with its command, machine and tables."""

import json
import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.checkout import ROOT

RESULTS = ROOT / "build" / "benchmarks"
_TABLE = re.compile(r"^\|.+\|\n\| ?---.*\|\n(?:\|.*\|(?:\n|$))*", re.MULTILINE)


def save(path: Path, heading: str, command: str, seconds: float, text: str) -> None:
    """Add a measured section to a JSON file, in place of an earlier measurement of the same section.

    Args:
        path: JSON file of the page, created if it does not exist.
        heading: Heading of the section.
        command: Command that repeats the measurement.
        seconds: Duration of the measurement.
        text: Markdown of the section, from which the tables are read.
    """
    sections = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    sections[heading] = {
        "command": command,
        "date": today(),
        "machine": machine(),
        "seconds": round(seconds, 1),
        "tables": tables(text),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sections, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def tables(text: str) -> list[list[dict[str, str]]]:
    """Read the tables of a Markdown text: one dictionary for each row, by the titles of the columns."""
    found = []
    for match in _TABLE.finditer(text):
        header, _, *rows = (_cells(line) for line in match.group().strip().splitlines())
        found.append([dict(zip(header, row, strict=True)) for row in rows])
    return found


def machine() -> str:
    """Describe processor, number of cores and Python."""
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    cores = len(os.sched_getaffinity(0))
    return f"{processor.split(':')[1].strip()}, {cores} cores, Python {platform.python_version()}"


def today() -> str:
    """Return the date in UTC, as YYYY-MM-DD."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def stamp(command: str, seconds: float) -> str:
    """Format the line under a heading: command, date, duration and machine of the measurement."""
    return f"*`{command}` on {today()}, {seconds:.0f} s; {machine()}.*"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
