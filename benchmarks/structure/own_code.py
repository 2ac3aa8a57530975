"""Writes how many lines the code has that is written here in place of a library, into docs/dependencies.md.

`python -m benchmarks.structure.own_code` counts the files and folders that the page names in brackets, as in
(`service/redis_client.py`, 140 lines), and the sum of those in its last table. `--check` writes nothing, and ends with
1 if a number on the page is off by more than a tenth.
"""

import argparse
import re
import sys
from pathlib import Path

from benchmarks.checkout import ROOT

PAGE = ROOT / "docs" / "dependencies.md"
_SOURCE = ROOT / "src" / "taugate"
_NAMED = re.compile(r"\((?P<paths>`[\w/.]+`(?:, `[\w/.]+`)*)(?:, [\d,]+ lines)?(?=[,)])")
_CODE = frozenset({".py", ".c", ".h"})
_TABLE = "## What is written here instead, and why"
_COUNT = re.compile(r"\b([\d,]+) lines\b")
_SLACK, _SLACK_LINES = 0.1, 20
_SUM = re.compile(r"^The files named here have [\d,]+ lines\b", re.MULTILINE)


def main() -> int:
    """Update the page, or check it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "page", type=Path, nargs="?", default=PAGE, help="page to write (default: docs/dependencies.md)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is out of date")
    arguments = parser.parse_args()
    path: Path = arguments.page
    page = path.read_text(encoding="utf-8")
    current = updated(page)
    if arguments.check:
        written, counted = (list(map(_number, _COUNT.findall(text))) for text in (page, current))
        off = len(written) != len(counted) or any(
            abs(old - new) > max(_SLACK * new, _SLACK_LINES) for old, new in zip(written, counted, strict=True)
        )
        if off:
            sys.stderr.write(f"{path}: lines of own code are out of date; run `make structure`\n")
        return int(off)
    path.write_text(current, encoding="utf-8")
    return 0


def updated(page: str) -> str:
    """Return the page with the numbers of lines that the files have now."""
    before, heading, table = page.partition(_TABLE)
    counted = sum(_lines(match["paths"]) for match in _NAMED.finditer(table))
    table = _SUM.sub(f"The files named here have {counted:,} lines", table)
    return _with_lines(before) + heading + _with_lines(table)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _with_lines(text: str) -> str:
    def write(match: re.Match[str]) -> str:
        lines = _lines(match["paths"])
        return f"({match['paths']}, {lines:,} lines" if lines else match[0]

    return _NAMED.sub(write, text)


def _lines(paths: str) -> int:
    """Count the lines of the named files and folders of taugate and its plug-ins, to the nearest ten; other names count nothing."""
    count = 0
    for name in re.findall(r"`([^`]+)`", paths):
        path = (ROOT if re.match("plugins/.*/src/", name) else _SOURCE) / name
        files = path.rglob("*") if path.is_dir() else [path] if path.is_file() else []
        count += sum(len(file.read_text("utf-8").splitlines()) for file in files if file.suffix in _CODE)
    return round(count, -1)


if __name__ == "__main__":
    sys.exit(main())
